// @ts-check
// Tags and notes: the form of a run's page, and a dialog for the rows of the table.
import { csrf, fetchJson, root } from "./page_info.js";

/** @param {HTMLFormElement} form */
async function save(form) {
  const fields = new FormData(form);
  const tags = String(fields.get("tags") ?? "").split(",").map((tag) => tag.trim()).filter(Boolean);
  const saved = form.querySelector(".saved");
  try {
    await fetchJson(`${root}/api/notes/${form.dataset.note}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Fedge-Token": csrf },
      body: JSON.stringify({ tags, note: String(fields.get("note") ?? "") }),
    });
    if (saved) saved.textContent = "saved";
    if ("closes" in form.dataset) {
      form.closest("dialog")?.close();
      document.dispatchEvent(new CustomEvent("fedge-noted"));
    }
  } catch (error) {
    if (saved) saved.textContent = error instanceof Error ? error.message : String(error);
  }
}

/** @param {HTMLElement} button */
function edit(button) {
  const dialog = document.getElementById("note-dialog");
  const form = dialog?.querySelector("form");
  if (!(dialog instanceof HTMLDialogElement) || !form) return;
  form.dataset.note = button.dataset.editNote;
  const [tags, note] = [form.querySelector("input"), form.querySelector("textarea")];
  if (tags) tags.value = button.dataset.tags ?? "";
  if (note) note.value = button.dataset.text ?? "";
  const saved = form.querySelector(".saved");
  if (saved) saved.textContent = "";
  dialog.showModal();
}

export function startNotes() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.dataset.note) return;
    event.preventDefault();
    save(form);
  });
  document.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const button = target.closest("[data-edit-note]");
    if (button instanceof HTMLElement) edit(button);
    if (target.matches("[data-close]")) target.closest("dialog")?.close();
  });
}
