"""The example notebook runs from top to bottom, and shows what it says it shows."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first.ipynb"

pytestmark = pytest.mark.full


def test_notebook_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs the extra `notebook`")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra `notebook`")
    pytest.importorskip("altair", reason="needs the extra `view`")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    pages = [output["data"]["text/html"] for output in shown if "text/html" in output["data"]]
    assert any("<table" in page and "scaffold" in page for page in pages)
    assert any("vega" in page and "upload (MB)" in page for page in pages)
    texts = [output["data"]["text/plain"] for output in shown]
    assert any("Pairing(first='SCAFFOLD', second='FedAvg'" in text for text in texts)
    assert any("<progress" in page and "round 10/10" in page for page in pages)
    assert any("<caption>mine: fedavg, complete" in page for page in pages)
    assert "'bytes_up'" in texts[-1]  # what the last cell found reaching an accuracy to cost


def test_notebook_is_kept_without_output() -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs the extra `notebook`")
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert [cell.get("outputs", []) for cell in cells if cell.cell_type == "code" and cell.outputs] == []
