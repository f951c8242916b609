// @ts-check

/** @param {number} step */
function move(step) {
  const rows = [...document.querySelectorAll("tr[data-row]")];
  if (!rows.length) return;
  const now = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
  const next = rows[Math.min(rows.length - 1, Math.max(0, now < 0 ? 0 : now + step))];
  if (next instanceof HTMLElement) {
    next.tabIndex = -1;
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
}

/** @returns {Element | null} */
function currentRow() {
  return document.activeElement?.closest("tr[data-row]") ?? null;
}

/** @type {Record<string, (event: KeyboardEvent) => void>} */
const KEYS = {
  "/": () => /** @type {HTMLElement | null} */ (document.querySelector('input[type="search"]'))?.focus(),
  "?": help,
  t: () => /** @type {HTMLElement | null} */ (currentRow()?.querySelector("[data-edit-note]") ?? null)?.click(),
  p: () => /** @type {HTMLElement | null} */ (document.querySelector("[data-play]"))?.click(),
  j: () => move(1),
  k: () => move(-1),
  ArrowDown: () => currentRow() && move(1),
  ArrowUp: () => currentRow() && move(-1),
  x: () => {
    const box = currentRow()?.querySelector('input[type="checkbox"]');
    if (box instanceof HTMLInputElement) box.click();
  },
  Enter: (event) => {
    if (event.target === currentRow()) currentRow()?.querySelector("a")?.click();
  },
  c: () => /** @type {HTMLElement | null} */ (document.querySelector("[data-compare]"))?.click(),
};

function help() {
  /** @type {HTMLDialogElement | null} */ (document.getElementById("help"))?.showModal();
}

export function showNumChosen() {
  const line = document.querySelector(".chosen-count");
  const number = document.querySelectorAll("tr[data-row] input:checked").length;
  if (line) line.textContent = number ? `${number} selected` : "";
}

export function startKeys() {
  document.querySelector("[data-help]")?.addEventListener("click", help);
  document.addEventListener("change", showNumChosen);
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const typing = target.matches("textarea, select, input:not([type=checkbox]):not([type=range])");
    if (event.key === "Escape" && typing) target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const act = KEYS[event.key];
    if (!act) return;
    if (event.key !== "Enter" && !(event.key.startsWith("Arrow") && !currentRow())) event.preventDefault();
    act(event);
  });
}
