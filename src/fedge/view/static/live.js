// @ts-check
// What changes while the page is open: records are appended, parts of changed runs are rendered again.
import { appendRecords } from "./charts.js";
import { fetchJson, root } from "./page_info.js";
import { refreshPart } from "./parts.js";

const POLL_MS = 1000;
const SILENT_MS = 4000;
const REFRESH_MS = 1000;

/** @typedef {{run: string | null, generation: number, offset: number}} Cursor */

let session = "";
/** @type {Set<string>} */
const waiting = new Set();

/** @param {string} text @param {boolean} on */
function report(text, on) {
  const line = document.getElementById("live");
  if (!line || line.textContent === text) return;
  line.textContent = text;
  line.classList.toggle("on", on);
}

/** @param {string} name */
function refreshSoon(name) {
  if (waiting.has(name)) return;
  waiting.add(name);
  setTimeout(() => {
    waiting.delete(name);
    refreshPart(name);
  }, REFRESH_MS);
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
  const figure = part.querySelector("figure[data-chart]");
  if (news.restarted || !figure || !appendRecords(figure, news.records)) refreshSoon(part.getAttribute("data-part") ?? "");
}

/** @param {string} event @param {any} data */
function handle(event, data) {
  if (event === "hello") {
    report("live", true);
    if (session && session !== data.session) {
      document.querySelectorAll("[data-part]").forEach((part) => refreshSoon(part.getAttribute("data-part") ?? ""));
    }
    session = data.session;
  } else if (event === "lost") report("connection lost, trying again", false);
  else if (event === "records") follow(data).catch((error) => report(String(error.message ?? error), false));
  else if (event === "run" || event === "server" || event === "note") changed(data.key);
  else if (event === "runs" || event === "sparks") changed("all");
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
    await new Promise((done) => setTimeout(done, POLL_MS));
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
    if (event.persisted) worker.port.postMessage({ url: `${location.origin}${root}/api/live` });
  });
}
