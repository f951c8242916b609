/* Tables and pictures that are wider than the page scroll. They can be reached with the keyboard, and fade at the side
   on which more of them is hidden. */

const WIDE = ".md-typeset__scrollwrap, .md-typeset p:has(> img)";

function mark(part) {
  const hidden = part.scrollWidth - part.clientWidth;
  part.classList.toggle("more", part.scrollLeft < hidden - 1);
  if (hidden > 1) {
    part.tabIndex = 0;
    part.setAttribute("role", "group");
    part.setAttribute("aria-label", part.querySelector("table") ? "Wide table" : "Wide picture");
  } else {
    for (const name of ["tabindex", "role", "aria-label"]) part.removeAttribute(name);
  }
}

addEventListener("load", () => {
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
  for (const part of document.querySelectorAll(WIDE)) {
    part.addEventListener("scroll", () => mark(part), { passive: true });
    sizes.observe(part);
  }
});
