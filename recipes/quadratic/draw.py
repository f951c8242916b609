"""Reproduce figure 1 of Mills, Hu & Min (2023): FedSGD on clients with quadratic losses.

    python recipes/quadratic/draw.py

Needs the extra `view`. Writes `rates.svg` and `steps.svg` next to this file and prints their numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from fedge.report.chart_options import ChartOptions
from fedge.report.style import FAINT, INK, line_looks, save
from fedge.schedules import Amounts, Moment, SchedulePlan
from fedge.schedules.timed import Exp
from fedge.theory import example_curvatures, example_minimiser, phi

ROUNDS, RUNS, COHORT = 3000, 10, 10
START, RATE, SERVER_RATE = 0.4, 0.1, 0.001
SHOWN_EVERY = 20  # rounds; more points would not be visible
HERE = Path(__file__).parent

RATES = {
    "K = 1": (1, SchedulePlan()),
    "K = 5": (5, SchedulePlan()),
    "K = 10": (10, SchedulePlan()),
    "K = 10, rate × 0.995": (10, SchedulePlan(learning_rate=Exp(decay=0.995))),
}
STEPS = {
    f"K × {decay:g} a round": (10, SchedulePlan(local_steps=Exp(decay=decay))) for decay in (0.99, 0.995, 0.999, 0.9995)
}


def train(steps: int, plan: SchedulePlan) -> tuple[np.ndarray, int]:
    """Return the mean model of all runs, initially and after each round, and the total steps of a client."""
    rng = np.random.default_rng(1)  # the same clients for every line
    base, state = Amounts(steps, RATE, SERVER_RATE), plan.init()
    x = np.full(RUNS, START)
    means, total = [x.mean()], 0
    for round in range(1, ROUNDS + 1):
        now = plan.amounts(base, Moment(round, fraction=1.0, cohort=COHORT, batch_size=1), state)
        z = example_curvatures(rng.random((RUNS, COHORT)))
        # K steps on a quadratic loss have a closed form: phi is their sum of gradients per unit of distance
        q = phi(z, now.rate, now.work) * (x[:, None] - 1 / z)
        x = x - SERVER_RATE * q.mean(axis=1)
        means.append(x.mean())
        total += now.work
    return np.array(means), total


def figure(lines: dict[str, np.ndarray]) -> alt.LayerChart:
    labels = list(lines)
    rows: list[dict[str, Any]] = [
        {"round": round, "x": float(line[round]), "label": label}
        for label, line in lines.items()
        for round in range(0, ROUNDS + 1, SHOWN_EVERY)
    ]
    goal = example_minimiser(RATE, 1)
    across = alt.X("round:Q", title="round", scale=alt.Scale(nice=False))
    up = alt.Y("x:Q", title="model x", scale=alt.Scale(zero=False, domain=[0.4, 0.57]))
    curves = alt.Chart(alt.Data(values=rows)).mark_line().encode(across, up, **line_looks(alt, labels))
    line = alt.Chart(alt.Data(values=[{"goal": goal}])).mark_rule(color=FAINT, strokeDash=[3, 3])
    name = alt.Chart(alt.Data(values=[{"goal": goal, "round": ROUNDS}])).mark_text(
        text="x*", color=INK, align="left", dx=4, fontStyle="italic"
    )
    marks = (line.encode(alt.Y("goal:Q")), name.encode(alt.X("round:Q"), alt.Y("goal:Q")))
    options = ChartOptions()
    return alt.layer(*marks, curves, title="mean of 10 runs; dashed: x*", config=options.style(labels), **options.size)


def main() -> None:
    goal = example_minimiser(RATE, 1)
    for name, settings in (("rates", RATES), ("steps", STEPS)):
        lines: dict[str, np.ndarray] = {}
        for label, (steps, plan) in settings.items():
            lines[label], total = train(steps, plan)
            far = np.flatnonzero(np.abs(lines[label] - goal) > 0.005)[-1]
            within = f"within 0.005 of x* from round {far + 1}" if far < ROUNDS else "never stays within 0.005 of x*"
            end = lines[label][-500:].mean()
            print(f"{label}: {end:.4f} over the last 500 rounds, {within}, {total} steps per client")
        save(figure(lines), HERE / f"{name}.svg")
    print(f"minimisers: {', '.join(f'K = {k}: {example_minimiser(RATE, k):.5f}' for k in (1, 5, 10))}")


if __name__ == "__main__":
    main()
