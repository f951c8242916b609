// @ts-check
// One stream for all tabs, because a browser opens at most six connections to a host.

const RETRY_MS = 5000;

/** @type {Set<MessagePort>} */
const ports = new Set();
/** @type {EventSource | undefined} */
let stream;
/** @type {any} */
let hello;
let last = "";

/** @param {any} message */
function tell(message) {
  for (const port of ports) port.postMessage(message);
}

/** @param {string} url */
function listen(url) {
  const source = (stream = new EventSource(url));
  source.onerror = () => {
    const refused = source.readyState === EventSource.CLOSED; // otherwise the browser reconnects automatically
    hello = undefined;
    tell({ event: refused ? "refused" : "lost" });
    if (refused) setTimeout(() => source === stream && listen(url), RETRY_MS);
  };
  for (const event of ["hello", "records", "run", "runs", "sparks", "server", "note"]) {
    source.addEventListener(event, (message) => {
      const data = JSON.parse(message.data);
      if (event === "hello") {
        hello = data;
        data.missed = last !== "" && last !== `${data.session} ${data.seq}`; // while there was no connection
        last = data.session;
      }
      last = `${last.split(" ")[0]} ${message.lastEventId}`;
      tell({ event, data });
    });
  }
}

/** @type {any} */ (self).onconnect = (/** @type {MessageEvent} */ event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data.leave) {
      ports.delete(port);
      if (!ports.size) {
        stream?.close();
        stream = hello = undefined;
        last = "";
      }
      return;
    }
    ports.add(port);
    if (!stream) listen(data.url);
    else if (hello) port.postMessage({ event: "hello", data: { ...hello, seq: Number(last.split(" ")[1]), missed: false } });
  };
  port.start();
};
