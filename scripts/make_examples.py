"""Train the examples of README and docs: docs/picture.svg, docs/timeline.svg and docs/examples/report.html.

python scripts/make_examples.py              # a minute or two on two idle cores
python scripts/make_examples.py --runs DIR   # from existing runs: DIR/demo, DIR/timeline and DIR/sweep
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from make_pictures import add_dark_colours

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/picture.svg"
TIMELINE, EDGE, ROUND = ROOT / "docs/timeline.svg", ROOT / "docs/examples/timeline.toml", 4
REPORT = ROOT / "docs/examples/report.html"
SWEEP = ROOT / "docs/examples/sweep.toml"
TITLE = "A small sweep on digits"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, help="folder of existing runs")
    given = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        runs = Path(name) if given is None else given.resolve()
        if given is None:
            fedge(runs, "run", *sorted((ROOT / "recipes/demo").glob("*.toml")), "--runs", "demo", "--quiet")
            fedge(runs, "run", EDGE, "--runs", ".", "--quiet")
            fedge(runs, "sweep", SWEEP, "--runs", "sweep")
        fedge(runs, "show", "demo", "--chart", PICTURE)
        add_dark_colours(PICTURE)
        fedge(runs, "plot", "timeline", "--kind", "timeline", "--round", ROUND, "-o", TIMELINE)
        fedge(runs, "report", "sweep", "-o", REPORT, "--title", TITLE)


def fedge(folder: Path, *arguments: object) -> None:
    command = [sys.executable, "-m", "fedge.cli", *map(str, arguments)]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
