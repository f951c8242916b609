// @ts-check

/** @param {string} name */
function meta(name) {
  return document.querySelector(`meta[name="${name}"]`)?.getAttribute("content") ?? "";
}

export const root = meta("fedge-root");
export const csrf = meta("fedge-csrf");
export const bundle = meta("fedge-bundle");
/** The session and the number of the last news when this page was rendered. */
export const news = meta("fedge-news");

/**
 * Fetch JSON; an error has the server's explanation as its message.
 * @param {string} url
 * @param {RequestInit} [options]
 * @returns {Promise<any>}
 */
export async function fetchJson(url, options) {
  const answer = await fetch(url, options);
  const body = await answer.text();
  let data;
  try {
    data = JSON.parse(body);
  } catch {
    throw new Error(body || `the server answered with status ${answer.status}`);
  }
  if (!answer.ok) throw new Error(data.error ?? `the server answered with status ${answer.status}`);
  return data;
}
