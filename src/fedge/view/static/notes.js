// @ts-check
import { csrf, fetchJson, root } from "./page_info.js";

export function startNotes() {
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.dataset.note) return;
    event.preventDefault();
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
    } catch (error) {
      if (saved) saved.textContent = error instanceof Error ? error.message : String(error);
    }
  });
}
