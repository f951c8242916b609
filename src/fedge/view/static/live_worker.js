// @ts-check
// One stream for all tabs of a browser, which opens at most six connections to a host.

/** @type {Set<MessagePort>} */
const ports = new Set();
/** @type {EventSource | undefined} */
let stream;
/** @type {any} */
let hello;

/** @param {any} message */
function tell(message) {
  for (const port of ports) port.postMessage(message);
}

/** @param {string} url */
function listen(url) {
  stream = new EventSource(url);
  stream.onerror = () => tell({ event: "lost" });
  for (const event of ["hello", "records", "run", "runs", "sparks", "server", "note"]) {
    stream.addEventListener(event, (message) => {
      const data = JSON.parse(message.data);
      if (event === "hello") hello = data;
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
      }
      return;
    }
    ports.add(port);
    if (!stream || stream.readyState === EventSource.CLOSED) listen(data.url);
    else if (hello) port.postMessage({ event: "hello", data: hello });
  };
  port.start();
};
