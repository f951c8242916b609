// @ts-check
// Vega-Lite specifications of the server, drawn without eval and without inline styles.
import { bundle, fetchJson } from "./page_info.js";

/** @typedef {{spec: any, command: string, n: number, of: number, notes: string[], append?: any}} ChartAnswer */
/** @typedef {{answer: ChartAnswer, view: any, finalize: () => void, rows: number}} Drawn */

/** @type {WeakMap<Element, Drawn>} */
const drawn = new WeakMap();
/** @type {WeakMap<Element, Promise<void>>} */
const turns = new WeakMap();
/** @type {Promise<any> | undefined} */
let loading;

function loadVega() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = bundle;
    script.onload = () => resolve(/** @type {any} */ (window).vegaEmbed);
    script.onerror = () => {
      loading = undefined; // the next chart tries again
      whyNoBundle().then((reason) => reject(new Error(reason)));
    };
    document.head.append(script);
  });
  return loading;
}

async function whyNoBundle() {
  try {
    const answer = await fetch(bundle);
    return answer.ok ? "the script that draws charts did not load; reload the page" : (await answer.json()).error;
  } catch {
    return "the server does not answer; is `fedge view` still running?";
  }
}

/** Print colours and their replacements on a dark page. */
const DARK = new Map([
  ["#222222", "#e6e9ed"], ["#777777", "#a3acb7"], ["#000000", "#ffffff"],
  ["#ffffff", "#14181d"], ["#d5d5d5", "#39424d"], ["#DDDDDD", "#59636f"], ["#0072B2", "#1f86d1"],
]);

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** @param {any} value @returns {any} */
function recoloured(value) {
  if (typeof value === "string") return DARK.get(value) ?? value;
  if (Array.isArray(value)) return value.map(recoloured);
  if (value && typeof value === "object") {
    if (value.name === "viridis") return { ...value, extent: [0.35, 1] }; // its dark end is invisible on a dark page
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, recoloured(inner)]));
  }
  return value;
}

/**
 * Return the specification with the width of its figure and the background of the page.
 * @param {any} spec @param {number} room
 */
function fitted(spec, room) {
  const made = isDark() ? recoloured(spec) : structuredClone(spec);
  made.config = { ...made.config, background: "transparent" };
  if (typeof made.width === "number" && !made.hconcat && !made.concat) {
    const inside = String(made.autosize?.type ?? "").startsWith("fit"); // then the width includes the axes
    const wide = Math.max(240, room - (inside ? 20 : 130));
    if (typeof made.height === "number" && (made.layer || made.mark) && made.height > 120 && made.width < wide) {
      made.height = Math.max(made.height, Math.min(320, Math.round((made.height * wide) / made.width)));
    }
    made.width = wide;
  }
  return made;
}

/**
 * Draw a chart after its earlier drawings have finished: two at once would share the figure.
 * @param {Element} figure @param {boolean} [fresh] whether its data may have changed
 * @returns {Promise<void>}
 */
function draw(figure, fresh = false) {
  const turn = (turns.get(figure) ?? Promise.resolve()).then(() => drawNow(figure, fresh));
  turns.set(figure, turn);
  return turn;
}

/** @param {Element} figure @param {boolean} fresh */
async function drawNow(figure, fresh) {
  const canvas = figure.querySelector(".canvas");
  const url = figure.getAttribute("data-chart");
  if (!(canvas instanceof HTMLElement) || !url) return;
  const own = !fresh && figure.getAttribute("data-asked") === url ? drawn.get(figure)?.answer : undefined;
  figure.setAttribute("data-asked", url);
  try {
    const [embed, answer] = await Promise.all([loadVega(), own ?? /** @type {Promise<ChartAnswer>} */ (fetchJson(url))]);
    if (figure.getAttribute("data-chart") !== url) return; // another chart was requested meanwhile
    const result = await embed(canvas, fitted(answer.spec, figure.clientWidth), {
      ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true, theme: "fedge" },
    });
    canvas.querySelector("svg")?.setAttribute("aria-hidden", "true"); // the figure has a role and a label
    const before = drawn.get(figure);
    before?.finalize();
    drawn.set(figure, { answer, view: result.view, finalize: () => result.finalize(), rows: 0 });
    const notes = figure.querySelector(".chart-notes");
    const count = answer.of > 1 ? [`${answer.n} of ${answer.of} selected runs`] : [];
    if (notes) notes.textContent = [...count, ...answer.notes].join("\n");
    const command = figure.querySelector(".command");
    if (command) command.textContent = answer.command;
    if (answer.append?.after < before?.answer.append?.after) draw(figure, true); // records arrived during the request
  } catch (error) {
    const line = document.createElement("p");
    line.className = "chart-problem";
    line.textContent = error instanceof Error ? error.message : String(error);
    canvas.replaceChildren(line);
  }
}

/** @param {ParentNode} within @param {boolean} [fresh] */
export function drawCharts(within, fresh = false) {
  within.querySelectorAll("figure[data-chart]").forEach((figure) => draw(figure, fresh));
}

export function recolourCharts() {
  drawCharts(document);
}

/**
 * Draw a chart with other parameters.
 * @param {Element} figure @param {string} url
 */
export function redraw(figure, url) {
  figure.setAttribute("data-chart", url);
  return draw(figure);
}

/**
 * Draw a chart with its current data.
 * @param {Element} figure
 */
export function drawAgain(figure) {
  return draw(figure, true);
}

/**
 * Append records to a chart of one run; return whether this succeeded. Records that the chart already has, written
 * while it was loading, are skipped. It fails if the chart lacks earlier records.
 * @param {Element} figure @param {any[]} records
 */
export function appendRecords(figure, records) {
  const known = drawn.get(figure);
  const how = known?.answer.append;
  if (!known || !how) return false;
  const news = records.filter((each) => each.round > how.after);
  if (news.length && news[0].round > how.after + 1) return false;
  const rows = [];
  for (const record of news) {
    how.after = record.round;
    if (how.x !== "round") how.total += record[how.x] ?? 0;
    if (record[how.y] == null) continue;
    const mean = record[how.y] / how.y_size;
    rows.push({ ...how.row, x: (how.x === "round" ? record.round : how.total) / how.x_size, mean, low: mean, high: mean });
  }
  known.answer.spec.datasets[how.data].push(...rows); // kept for redrawing when the theme changes
  known.view.insert(how.data, rows).runAsync();
  return true;
}
