// @ts-check
// The form above the table of runs: adds and removes filters, and shows the field for the round where it applies.

/** @param {Element} element */
function changed(element) {
  element.dispatchEvent(new Event("input", { bubbles: true }));
}

/** @param {HTMLElement} group */
function add(group) {
  const last = [...group.querySelectorAll(".filter")].at(-1);
  if (!last) return;
  const next = /** @type {HTMLElement} */ (last.cloneNode(true));
  const input = next.querySelector("input");
  last.after(next);
  if (input) {
    input.value = "";
    input.focus();
  }
}

/** @param {HTMLElement} filter */
function remove(filter) {
  const group = filter.closest(".filters");
  const input = filter.querySelector("input");
  if (!group || !input) return;
  if (group.querySelectorAll(".filter").length > 1) filter.remove();
  else input.value = "";
  changed(group);
  group.querySelector("input")?.focus();
}

export function startFilters() {
  document.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const group = target.closest(".filters");
    if (target.matches("[data-add-filter]") && group instanceof HTMLElement) add(group);
    const filter = target.matches("[data-remove-filter]") ? target.closest(".filter") : null;
    if (filter instanceof HTMLElement) remove(filter);
  });
  document.addEventListener("input", (event) => {
    const target = event.target;
    const asked = document.querySelector("[data-round-of-values]");
    if (!(target instanceof HTMLSelectElement) || target.name !== "values" || !(asked instanceof HTMLElement)) return;
    asked.hidden = target.value !== "at";
    const round = asked.querySelector("input");
    if (round && !asked.hidden && !round.value) round.value = "1";
    if (round && asked.hidden) round.value = "";
  }, true); // before the form is read
}
