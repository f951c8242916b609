"""Train the examples of README and docs, and write docs/picture.svg and docs/examples/report.html.

python scripts/make_examples.py              # a minute or two on two idle cores
python scripts/make_examples.py --runs DIR   # from existing runs: DIR/demo and DIR/sweep
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/picture.svg"
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
            fedge(runs, "sweep", SWEEP, "--runs", "sweep")
        fedge(runs, "show", "demo", "--chart", PICTURE)
        fedge(runs, "report", "sweep", "-o", REPORT, "--title", TITLE)


def fedge(folder: Path, *arguments: object) -> None:
    command = [sys.executable, "-m", "fedge.cli", *map(str, arguments)]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
