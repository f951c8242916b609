// @ts-check
import { drawCharts, recolourCharts } from "./charts.js";
import { startCopying } from "./copying.js";
import { startFilters } from "./filters.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startNotes } from "./notes.js";
import { refreshPart, startParts } from "./parts.js";
import { startPlayers } from "./player.js";

startFilters();
startParts();
startKeys();
startNotes();
startCopying();
startPlayers();
drawCharts(document);
startLive();

document.addEventListener("fedge-noted", () => refreshPart("rows"));
document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("fedge-theme", root.dataset.theme);
  recolourCharts();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolourCharts);
