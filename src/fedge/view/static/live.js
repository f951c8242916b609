// @ts-check
// Live updates: append records to charts, and render rows and parts of changed runs again.
import { appendRecords, drawAgain } from "./charts.js";
import { fetchJson, news as rendered, root } from "./page_info.js";
import { refreshPart } from "./parts.js";

const POLL_MS = 1000;
const SILENT_MS = 4000;
const REFRESH_MS = 1000;
const THROUGHPUT_MS = 5000;
const ALL = "all";

/** @typedef {{run: string | null, generation: number, offset: number}} Cursor */

let session = "";
/** @type {Promise<void>} */
let following = Promise.resolve();
/** @type {Map<string, boolean>} names of parts being refreshed, and whether another refresh was requested */
const refreshing = new Map();
/** @type {Map<string, Set<string>>} by the name of a part: runs that have changed since its last request */
const stale = new Map();

/** @param {string} text @param {boolean} on */
function report(text, on) {
  const line = document.getElementById("live");
  if (!line || line.textContent === text) return;
  line.textContent = text;
  line.classList.toggle("on", on);
}

/** @param {number} ms */
function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

/** @returns {Promise<void>} resolved once the page is visible */
function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((done) => document.addEventListener("visibilitychange", () => done(), { once: true }));
}

/**
 * Run an action now, and once more if requested meanwhile; never concurrently, and at most once per interval.
 * @param {string} name @param {() => Promise<void>} act @param {number} [every]
 */
async function throttled(name, act, every = REFRESH_MS) {
  if (refreshing.has(name)) {
    refreshing.set(name, true);
    return;
  }
  refreshing.set(name, true);
  try {
    do {
      await visible();
      refreshing.set(name, false);
      await Promise.all([act(), pause(every)]);
    } while (refreshing.get(name));
  } finally {
    refreshing.delete(name);
  }
}

/** @param {string} name @param {string[]} keys */
function note(name, keys) {
  stale.set(name, new Set([...(stale.get(name) ?? []), ...keys]));
}

/**
 * Refresh a part, or of a part with rows only those of some runs.
 * @param {string} name @param {string[]} [keys]
 */
function refreshSoon(name, keys = [ALL]) {
  note(name, keys);
  throttled(name, async () => {
    const wanted = stale.get(name);
    stale.delete(name);
    if (wanted && !(await refreshPart(name, wanted.has(ALL) ? undefined : wanted))) note(name, [...wanted]); // retried with the next news
  });
}

function refreshAll() {
  document.querySelectorAll("[data-part]").forEach((part) => refreshSoon(part.getAttribute("data-part") ?? ""));
}

/**
 * Refresh the parts that show some of these runs.
 * @param {string[]} keys @param {string} [within] which parts
 */
function changed(keys, within = "[data-live]") {
  for (const part of document.querySelectorAll(`[data-part]${within}`)) {
    const live = part.getAttribute("data-live");
    const shown = live === ALL ? keys : keys.filter((key) => live?.split(" ").includes(key));
    if (shown.length) refreshSoon(part.getAttribute("data-part") ?? "", shown);
  }
}

/** @param {any} data */
async function follow(data) {
  const part = document.querySelector(`[data-follow="${data.key}"]`);
  if (!part) return;
  /** @type {Cursor} */
  const own = JSON.parse(part.getAttribute("data-cursor") ?? "{}");
  const fits = data.from && data.from.offset === own.offset && data.from.generation === own.generation && data.from.run === own.run;
  let news = { records: data.records, cursor: data.to, restarted: data.restarted };
  if (!fits) {
    const query = new URLSearchParams({ run: own.run ?? "", generation: String(own.generation), offset: String(own.offset) });
    news = await fetchJson(`${root}/api/run/${data.key}/records?${query}`);
  }
  part.setAttribute("data-cursor", JSON.stringify(news.cursor));
  if (!news.restarted && !news.records.length) return;
  if (!fits) changed([data.key]);
  const figures = [...part.querySelectorAll("figure[data-chart]")];
  /** @type {string[]} */
  const offered = JSON.parse(part.querySelector("[data-fields]")?.getAttribute("data-fields") ?? "[]");
  /** @type {[string, unknown][]} */
  const values = news.records.flatMap((/** @type {object} */ each) => Object.entries(each));
  const lacks = values.some(([name, value]) => ["number", "boolean"].includes(typeof value) && !offered.includes(name));
  if (news.restarted || !figures.length || lacks) refreshSoon(part.getAttribute("data-part") ?? "");
  else {
    for (const figure of figures.filter((each) => !appendRecords(each, news.records))) {
      throttled(figure.getAttribute("data-chart") ?? "", () => drawAgain(figure));
    }
  }
}

/** @param {any} data */
function followEvents(data) {
  for (const part of data.events ? document.querySelectorAll(`[data-follow-events="${data.key}"]`) : []) {
    const figure = part.querySelector("figure");
    if (!figure) refreshSoon(part.getAttribute("data-part") ?? "");
    else throttled(figure.getAttribute("data-chart") ?? "", () => drawAgain(figure), THROUGHPUT_MS);
  }
}

/**
 * Request what was written after the page was rendered and before it began to listen.
 * @param {{session: string, seq: number}} heard the last news before the first that this page receives
 */
function catchUp(heard) {
  const [maker, seq] = rendered.split(" ");
  if (maker !== heard.session || Number(seq) < heard.seq) {
    document.querySelectorAll("[data-live]").forEach((part) => refreshSoon(part.getAttribute("data-part") ?? ""));
  }
  for (const part of document.querySelectorAll("[data-follow]")) {
    handle("records", { key: part.getAttribute("data-follow"), from: null });
  }
}

/** @param {string} event @param {any} data */
function handle(event, data) {
  if (event === "hello") {
    report("live", true);
    if (data.missed || (session && session !== data.session)) refreshAll();
    else if (!session) catchUp(data);
    session = data.session;
  } else if (event === "lost") report("connection lost, trying again", false);
  else if (event === "refused") report("refused: open the address that fedge view printed", false);
  else if (event === "records") {
    following = following.then(() => follow(data)).catch((error) => report(String(error.message ?? error), false));
  } else if (event === "run" || event === "note") changed([data.key]);
  else if (event === "server") {
    changed([data.key]);
    followEvents(data);
  } else if (event === "runs") changed([...data.added, ...data.removed]);
  else if (event === "sparks") changed(data.keys, '[data-part="rows"]');
}

async function poll() {
  let seq = "";
  for (;;) {
    try {
      const news = await fetchJson(`${root}/api/news?since=${seq}`);
      const anew = news.reset && seq ? `${news.session}-${news.seq}` : news.session;
      handle("hello", { session: session.startsWith(anew) ? session : anew, seq: news.seq });
      seq = String(news.seq);
      for (const { event, data } of news.events) handle(event, data);
    } catch {
      handle("lost", null);
    }
    await pause(POLL_MS);
    await visible();
  }
}

export function startLive() {
  if (!("SharedWorker" in window)) {
    poll();
    return;
  }
  const worker = new SharedWorker(new URL("./live_worker.js", import.meta.url), { name: "fedge-live" });
  const fallback = setTimeout(() => {
    worker.port.onmessage = null; // a proxy buffers the stream
    worker.port.postMessage({ leave: true });
    poll();
  }, SILENT_MS);
  worker.port.onmessage = ({ data }) => {
    clearTimeout(fallback);
    handle(data.event, data.data);
  };
  worker.port.postMessage({ url: `${location.origin}${root}/api/live` });
  addEventListener("pagehide", () => worker.port.postMessage({ leave: true }));
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    worker.port.postMessage({ url: `${location.origin}${root}/api/live` });
    refreshAll(); // restored from the browser's cache: it missed all news since
  });
}
