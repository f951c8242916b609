// @ts-check
// Steps through the recorded rounds of the edge: the grid of cells and the timeline show the same round.
import { redraw } from "./charts.js";

const EVERY_MS = 700;

/** @param {Element} player */
function start(player) {
  const rounds = JSON.parse(player.getAttribute("data-rounds") ?? "[]");
  const slider = player.querySelector("[data-round]");
  const button = player.querySelector("[data-play]");
  const output = player.querySelector("output");
  if (!(slider instanceof HTMLInputElement) || !(button instanceof HTMLButtonElement) || !output) return;
  const figures = [...document.querySelectorAll('figure[data-chart*="/api/chart/grid"], figure[data-chart*="/api/chart/timeline"]')];
  let playing = false;

  const show = async () => {
    const round = rounds[Number(slider.value)];
    output.textContent = String(round);
    slider.setAttribute("aria-valuetext", `round ${round}`);
    await Promise.all(figures.map((figure) => {
      const url = new URL(figure.getAttribute("data-chart") ?? "", location.href);
      url.searchParams.set("at", String(round));
      return redraw(figure, url.pathname + url.search);
    }));
  };

  const play = async () => {
    while (playing) {
      if (Number(slider.value) >= rounds.length - 1) slider.value = "-1";
      slider.value = String(Number(slider.value) + 1);
      await Promise.all([show(), new Promise((done) => setTimeout(done, EVERY_MS))]);
      if (Number(slider.value) >= rounds.length - 1) set(false);
    }
  };

  /** @param {boolean} on */
  const set = (on) => {
    playing = on;
    button.textContent = on ? "Pause" : "Play";
    button.setAttribute("aria-pressed", String(on));
  };

  slider.addEventListener("input", show);
  button.addEventListener("click", () => {
    set(!playing);
    if (playing) play();
  });
}

export function startPlayers() {
  document.querySelectorAll("[data-player]").forEach(start);
}
