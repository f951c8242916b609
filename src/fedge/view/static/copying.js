// @ts-check
// Buttons that copy the command beside them.

/** @param {string} text */
async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea"); // without TLS, this is a browser's only access to the clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("[data-copy]");
    const text = button?.parentElement?.querySelector(".command")?.textContent;
    if (!button || !text) return;
    try {
      await copy(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy it yourself";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}
