// @ts-check
// What changes while the page is open: records are appended, parts of changed runs are rendered again.
import { appendRecords, drawAgain } from "./charts.js";
import { fetchJson, root } from "./page_info.js";
import { refreshPart } from "./parts.js";

const POLL_MS = 1000;
const SILENT_MS = 4000;
const REFRESH_MS = 1000;

/** @typedef {{run: string | null, generation: number, offset: number}} Cursor */

let session = "";
/** @type {Promise<void>} */
let following = Promise.resolve();
/** @type {Map<string, boolean>} names of parts that are being refreshed, and whether that is wanted again */
const refreshing = new Map();

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

/** @returns {Promise<void>} when somebody can see the page */
function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((done) => document.addEventListener("visibilitychange", () => done(), { once: true }));
}

/**
 * Do something now, and if it is wanted meanwhile once more, at most once a second and never twice at a time.
 * @param {string} name @param {() => Promise<void>} act
 */
async function throttled(name, act) {
  if (refreshing.has(name)) {
    refreshing.set(name, true);
    return;
  }
  try {
    do {
      await visible();
      refreshing.set(name, false);
      await Promise.all([act(), pause(REFRESH_MS)]);
    } while (refreshing.get(name));
  } finally {
    refreshing.delete(name);
  }
}

/** @param {string} name */
function refreshSoon(name) {
  throttled(name, () => refreshPart(name));
}

function refreshAll() {
  document.querySelectorAll("[data-part]").forEach((part) => refreshSoon(part.getAttribute("data-part") ?? ""));
}

/** @param {string} key */
function changed(key) {
  for (const part of document.querySelectorAll("[data-part][data-live]")) {
    const live = part.getAttribute("data-live");
    if (live === "all" || live?.split(" ").includes(key)) refreshSoon(part.getAttribute("data-part") ?? "");
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
  if (!fits) changed(data.key);
  const figures = [...part.querySelectorAll("figure[data-chart]")];
  if (news.restarted || !figures.length) refreshSoon(part.getAttribute("data-part") ?? "");
  else {
    for (const figure of figures.filter((each) => !appendRecords(each, news.records))) {
      throttled(figure.getAttribute("data-chart") ?? "", () => drawAgain(figure));
    }
  }
}

/** Ask for records that were written after the page was made and before it listened. */
function catchUp() {
  for (const part of document.querySelectorAll("[data-follow]")) {
    handle("records", { key: part.getAttribute("data-follow"), from: null });
  }
}

/** @param {string} event @param {any} data */
function handle(event, data) {
  if (event === "hello") {
    report("live", true);
    if (data.missed || (session && session !== data.session)) refreshAll();
    else if (!session) catchUp();
    session = data.session;
  } else if (event === "lost") report("connection lost, trying again", false);
  else if (event === "refused") report("refused: open the address that fedge view has printed", false);
  else if (event === "records") {
    following = following.then(() => follow(data)).catch((error) => report(String(error.message ?? error), false));
  } else if (event === "run" || event === "server" || event === "note") changed(data.key);
  else if (event === "runs") ["all", ...data.added, ...data.removed].forEach(changed);
  else if (event === "sparks") changed("all");
}

async function poll() {
  let seq = "";
  for (;;) {
    try {
      const news = await fetchJson(`${root}/api/news?since=${seq}`);
      handle("hello", { session: news.reset && seq ? `${news.session}-${news.seq}` : session.startsWith(news.session) ? session : news.session });
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
    worker.port.onmessage = null; // a proxy holds the stream back
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
    refreshAll(); // the page was away, and so was its news
  });
}
