// @ts-check
// Parts of a page are rendered by the server and replaced here: the URL holds the complete state of a view.
import { drawCharts } from "./charts.js";
import { showNumChosen } from "./keys.js";

const MOST_ROWS = 200; // whose keys fit a header
const CONTROLS = "a, button, input";

/** @type {Map<string, AbortController>} */
const pending = new Map();

/**
 * Fetch a part of the current page again and put it in place; focus, ticked boxes and scroll positions stay.
 * @param {string} name
 * @param {Set<string>} [keys] the runs that have changed: only their rows are fetched if the table is otherwise unchanged
 * @returns {Promise<boolean>} whether this call, or a later one, refreshes the part
 */
export async function refreshPart(name, keys) {
  const element = document.querySelector(`[data-part="${name}"]`);
  if (!(element instanceof HTMLElement)) return true;
  pending.get(name)?.abort();
  const request = new AbortController();
  pending.set(name, request);
  const order = element.querySelector("[data-order]")?.getAttribute("data-order");
  /** @type {Record<string, string>} */
  const headers = { "Fedge-Part": name };
  if (order && keys && keys.size <= MOST_ROWS) Object.assign(headers, { "Fedge-Order": order, "Fedge-Changed": [...keys].join(" ") });
  let answer, html;
  try {
    answer = await fetch(location.href, { headers, signal: request.signal });
    html = await answer.text();
  } catch (error) {
    if (!request.signal.aborted) say(element, "the server does not answer; is `fedge view` still running?");
    return request.signal.aborted;
  }
  if (!answer.ok) {
    const page = new DOMParser().parseFromString(html, "text/html");
    say(element, page.querySelector(".warning")?.textContent ?? html);
    return false;
  }
  element.querySelector(":scope > .part-problem")?.remove();
  if (answer.headers.has("Fedge-Order")) {
    replaceRows(element, html);
    return true;
  }
  const kept = remember(element);
  element.innerHTML = html;
  kept();
  showNumChosen();
  drawCharts(element, true);
  return true;
}

/**
 * Replace changed rows.
 * @param {HTMLElement} element @param {string} html
 */
function replaceRows(element, html) {
  const made = document.createElement("template");
  made.innerHTML = html;
  for (const row of made.content.querySelectorAll("[data-row]")) {
    const before = element.querySelector(`[data-row="${row.getAttribute("data-row")}"]`);
    const box = row.querySelector('input[type="checkbox"]');
    const old = before?.querySelector('input[type="checkbox"]');
    if (box instanceof HTMLInputElement && old instanceof HTMLInputElement) box.checked = old.checked;
    const refocus = rememberRow(element);
    before?.replaceWith(row);
    refocus();
  }
}

/**
 * Record which row, or control in a row, has the focus; return a function that restores it.
 * @param {HTMLElement} element
 */
function rememberRow(element) {
  const row = document.activeElement?.closest("[data-row]");
  if (!row || !element.contains(row)) return () => {};
  const place = [...row.querySelectorAll(CONTROLS)].findIndex((each) => each === document.activeElement);
  return () => {
    const next = element.querySelector(`[data-row="${row.getAttribute("data-row")}"]`);
    const target = place < 0 ? next : next?.querySelectorAll(CONTROLS)[place];
    if (!(target instanceof HTMLElement) || target === document.activeElement) return;
    if (target === next) target.tabIndex = -1;
    target.focus({ preventScroll: true });
  };
}

/** @param {HTMLElement} element @param {string} text */
function say(element, text) {
  const line = element.querySelector(":scope > .part-problem") ?? document.createElement("p");
  line.className = "warning part-problem";
  line.setAttribute("role", "alert");
  line.textContent = text;
  element.prepend(line);
}

/**
 * Record the user's input in a part; return a function that restores it.
 * @param {HTMLElement} element
 */
function remember(element) {
  const ticked = new Set([...element.querySelectorAll("input:checked")].map((box) => /** @type {HTMLInputElement} */ (box).value));
  const refocus = rememberRow(element);
  const field = document.activeElement?.closest("[name]");
  const named = field && !field.matches('[type="checkbox"]') && element.contains(field) ? field.getAttribute("name") : null;
  const charts = new Map([...element.querySelectorAll("figure[data-chart]")].map((each) => [each.getAttribute("data-chart"), each]));
  const open = [...element.querySelectorAll("details")].map((each) => each.open);
  const scrolls = [...element.querySelectorAll(".scroll, .feed")].map((each) => [each.scrollLeft, each.scrollTop]);
  return () => {
    for (const box of element.querySelectorAll('input[type="checkbox"]')) {
      if (box instanceof HTMLInputElement) box.checked = ticked.has(box.value);
    }
    for (const figure of element.querySelectorAll("figure[data-chart]")) {
      const before = charts.get(figure.getAttribute("data-chart"));
      if (before) figure.replaceWith(before); // shown until its new data arrives
    }
    element.querySelectorAll("details").forEach((each, i) => (each.open = open[i] ?? each.open));
    element.querySelectorAll(".scroll, .feed").forEach((each, i) => {
      if (scrolls[i]) [each.scrollLeft, each.scrollTop] = scrolls[i];
    });
    const again = named === null ? null : [...element.querySelectorAll("[name]")].find((each) => each.getAttribute("name") === named);
    if (again instanceof HTMLElement) again.focus();
    refocus();
  };
}

/** @param {HTMLFormElement} form */
function show(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value && typeof value === "string") query.append(name, value);
  const url = new URL(form.action);
  url.search = query.toString();
  history.replaceState(null, "", url);
  for (const name of (form.dataset.view ?? "").split(" ")) refreshPart(name);
}

export function startParts() {
  /** @type {number | undefined} */
  let timer;
  document.addEventListener("input", (event) => {
    const form = /** @type {HTMLElement} */ (event.target).closest("form[data-view]");
    if (!(form instanceof HTMLFormElement)) return;
    clearTimeout(timer);
    timer = setTimeout(() => show(form), 150);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.matches("[data-view]")) return;
    event.preventDefault();
    show(form);
  });
  document.addEventListener("click", (event) => {
    const link = /** @type {HTMLElement} */ (event.target).closest("a[data-sort], a[data-page]");
    if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.replaceState(null, "", link.href);
    const sort = document.querySelector('form[data-view] input[name="sort"]');
    if (sort instanceof HTMLInputElement) sort.value = new URL(link.href).searchParams.get("sort") ?? "";
    refreshPart("rows");
  });
}
