"""Make the screenshots of docs/view.md: train a few small runs, open the results page on them, and take pictures.

python scripts/make_screenshots.py              # trains for about a minute
python scripts/make_screenshots.py --runs DIR   # keeps the runs in DIR, and does not train them again

Needs the extras `page` and `dev` and a Chromium; CHROMIUM names another one than /usr/bin/chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
WIDTH, MAX_BYTES = 1280, 200_000
COLUMNS = ("algorithm.learning_rate", "algorithm.local_steps", "accuracy", "rounds_to_target")
COMMON = """
[data]
name = "digits"
clients = 40
partition = { name = "shards", per_client = 2 }

[model]
name = "logistic"

[evaluate]
every = 1
user_accuracy = true

[target]
metric = "accuracy"
value = 0.8
"""
SWEEP = f"""
name = "rates"
seeds = [1, 2, 3]
rounds = 40
{COMMON}
[algorithm]
name = ["fedavg", "scaffold"]
learning_rate = [0.05, 0.2]
local_steps = [5, 20]

[selection]
fraction = 0.25

[edge]
clock = "fixed"
down_mbps = 20
up_mbps = 5
seconds_per_step = 0.017
"""
CELLS = f"""
name = "cells"
rounds = 30
{COMMON}
[algorithm]
name = "fedavg"
learning_rate = 0.1
local_steps = 5

[edge]
clock = "cells"
cells = 9
global_every = 3
mobility_rate = 0.25
record = true
"""


def train(runs: Path) -> None:
    """Train a sweep over three seeds and a run with cells, unless they are there."""
    for name, text, command in (("rates", SWEEP, "sweep"), ("cells", CELLS, "run")):
        if not (runs / name).exists():
            file = runs / f"{name}.toml"
            file.write_text(text)
            subprocess.run([sys.executable, "-m", "fedge.cli", command, file, "--runs", runs, "--quiet"], check=True)


@contextmanager
def serving(runs: Path) -> Iterator[str]:
    """Start `fedge view`; yields the address that it prints."""
    command = [sys.executable, "-m", "fedge.cli", "view", str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = (line for line in server.stdout or () if "http://" in line)
            found = re.search(r"http://\S+", next(lines, ""))
            if found is None:
                raise SystemExit("fedge view printed no address; run it alone to see why")
            yield found[0]
        finally:
            server.terminate()


def take(page: Page, name: str, height: int) -> None:
    """Store a picture of the page's top, once all charts are drawn, with few colours so that it stays small."""
    page.set_viewport_size({"width": WIDTH, "height": height})
    for waiting in page.locator(".wait").all():
        waiting.wait_for(state="detached", timeout=60_000)
    page.locator(".spark, svg.marks").first.wait_for(timeout=60_000)
    file = DOCS / f"view-{name}.png"
    page.screenshot(path=file)
    for colours in (256, 128, 64):
        with Image.open(file) as picture:
            picture.convert("RGB").quantize(colours, dither=Image.Dither.NONE).save(file, optimize=True)
        if file.stat().st_size < MAX_BYTES:
            print(f"{file}: {file.stat().st_size:,} bytes")
            return
    raise SystemExit(f"{file}: {file.stat().st_size:,} bytes, expected less than {MAX_BYTES:,}; make it smaller")


def make(runs: Path) -> None:
    """Train, serve, and take all pictures."""
    train(runs)
    with serving(runs) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000}, color_scheme="light")
        page.goto(address)
        page.locator(".spark").first.wait_for(timeout=60_000)
        base = address.partition("?")[0]
        columns = "".join(f"&column={name}" for name in COLUMNS)
        page.goto(f"{base}?q=rates&sort=-accuracy{columns}")
        take(page, "runs", 760)
        page.goto(f"{base}compare?q=rates&seeds=1&top=4")
        take(page, "compare", 1290)
        page.goto(base)
        page.get_by_role("link", name="cells", exact=True).click()
        take(page, "run", 1400)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="where runs are kept; else they are trained anew")
    given = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        runs = given or Path(folder) / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        make(runs.resolve())


if __name__ == "__main__":
    main()
