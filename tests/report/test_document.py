"""The content of a report in its three formats; its commands give the same runs."""

import json
import re
import shlex
import tomllib
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from fedge.config import assignments, change, parse, plain
from fedge.core.errors import ConfigError, RunError
from fedge.report.collect import collect
from fedge.report.document import Figure, describe_runs, describe_source
from fedge.report.reproduction import changes, commands, common_toml
from fedge.report.tables import TableCells
from fedge.report.writers import latex, markdown, page

BASE = {
    "rounds": 3,
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "logistic"},
    "target": {"metric": "accuracy", "value": 0.6},
}
ALGORITHMS = (
    {"name": "fedavg", "learning_rate": 0.1, "local_steps": 2},
    {"name": "fedavg", "learning_rate": 0.5, "local_epochs": 1},
    {"name": "scaffold", "learning_rate": 0.1, "local_steps": 2},
)


ENVIRONMENT = {
    "fedge": "1",
    "torch": "<2>",
    "commit": None,
    "engine": {"name": "block", "rows": 64},
    "started": "2026",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, algorithm in enumerate(ALGORITHMS):
        for seed in (1, 2):
            path = tmp_path / f"run-{i}" / f"seed-{seed}"
            path.mkdir(parents=True)
            config = plain(parse({**BASE, "name": "x_y", "seed": seed, "algorithm": algorithm}))
            reached = None if (i, seed) == (2, 2) else 2
            summary = {"rounds": 3, "accuracy": 0.5 + i / 10 + seed / 100, "rounds_to_target": reached}
            summary |= dict.fromkeys(("bytes_up_to_target", "bytes_down_to_target"), reached and reached * 10**6)
            records = [{"round": r, "accuracy": 0.2 * r + i / 10, "bytes_up": 10**6} for r in (1, 2, 3)]
            (path / "config.json").write_text(json.dumps(config | {"format": 1}))
            (path / "environment.json").write_text(json.dumps(ENVIRONMENT))
            (path / "summary.json").write_text(json.dumps(summary))
            (path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


def test_commands_give_the_same_configuration(folder: Path) -> None:
    runs, _ = collect([folder])
    common = tomllib.loads(common_toml(runs))
    for run, command in zip(runs, commands(runs, "common.toml"), strict=True):
        words = shlex.split(command)
        assert words[:3] == ["fedge", "run", "common.toml"]
        sets = [word for word in words[3:] if word != "--set"]
        assert plain(parse(change(common, assignments(sets)))) == run.config


def test_common_settings_exclude_those_that_differ(folder: Path) -> None:
    runs, _ = collect([folder])
    assert changes(runs)[0] == {
        "seed": 1,
        "algorithm.name": "fedavg",
        "algorithm.learning_rate": 0.1,
        "algorithm.local_steps": 2,
        "algorithm.weighting": runs[0].config["algorithm"]["weighting"],
    }


def test_markdown(folder: Path) -> None:
    runs, problems = collect([folder])
    text = markdown(describe_runs(runs, problems, "Two | algorithms"))
    for part in (
        "# Two \\| algorithms",
        "6 runs in 3 groups of equal settings.",
        "## Paired comparison",
        "### Correlation",
        "1/2 reached",
    ):
        assert part in text
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert tables
    for table in tables:
        counts = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1
    # rates 0.1, 0.1, 0.5, 0.5, 0.1, 0.1 against accuracies 0.51, 0.52, 0.61, 0.62, 0.71, 0.72: no correlation
    row = next(
        line for line in text[text.index("### Correlation") :].splitlines() if line.startswith("| learning rate η")
    )
    assert row.split("|")[2].strip() in ("+0.00 (6)", "−0.00 (6)")


def test_latex_is_escaped_and_balanced(folder: Path) -> None:
    runs, problems = collect([folder])
    text = latex(describe_runs(runs, problems))
    assert r"algorithm\_" not in text
    assert r"FedAvg, $\eta$ = 0.1" in text
    assert r"\textbf{" in text
    assert not re.search(r"(?<!\\)[_#]", text)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") > 3
    for body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        columns, lines = body[0], [line for line in body[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.split(r"(?<!\\)&", line)) for line in lines} == {len(columns)}


def test_page_is_one_file_with_its_charts(folder: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra `view`")
    runs, problems = collect([folder])
    text = page(describe_runs(runs, [*problems, "left out: <b>"], "A <title>"))
    assert "<h1>A &lt;title&gt;</h1>" in text
    assert "left out: &lt;b&gt;" in text
    assert "&lt;2&gt;" in text  # of the environment
    assert "<td>name block, rows 64</td>" in text
    assert "<td>unknown</td>" in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) >= 4
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    identities = re.findall(r'\bid="([^"]+)"', text)
    assert len(identities) == len(set(identities))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(identities)
    fetched = re.findall(r'(?:src|href)="([^"]*)"', text) + re.findall(r"@import|url\(['\"]?http", text)
    sections = re.findall(r'<section id="([^"]+)">', text)
    assert fetched == [f"#{section}" for section in sections]  # the table of contents, and no address
    assert 'class="best"' in text
    assert text.count("<script>") == 1


def test_user_accuracy_is_drawn_if_it_was_measured(folder: Path) -> None:
    def titles() -> list[str]:
        runs, problems = collect([folder])
        parts = [part for section in describe_runs(runs, problems).sections for part in section.parts]
        return [part.title for part in parts if isinstance(part, Figure)]

    assert "User accuracy over clients" not in titles()
    (folder / "run-1" / "seed-2" / "clients.jsonl").write_text('{"client": 0, "user_accuracy": 0.5}\n')
    assert "User accuracy over clients" in titles()


def test_a_single_unfinished_run_has_a_report_too(folder: Path) -> None:
    (folder / "run-0" / "seed-1" / "summary.json").unlink()
    runs, problems = collect([folder / "run-0" / "seed-1"])
    text = markdown(describe_runs(runs, problems))
    assert "1 run in 1 group of equal settings, 1 of them unfinished." in text
    assert "Paired" not in text


def test_natural_order_and_reasons(folder: Path) -> None:
    (folder / "run-1").rename(folder / "run-10")
    (folder / "run-2" / "seed-1" / "rounds.jsonl").write_text("nonsense\n")
    (folder / "run-2" / "seed-2" / "config.json").write_text('{"format": 9}')
    runs, problems = collect([folder])
    assert [str(run.path.relative_to(folder)) for run in runs] == [
        "run-0/seed-1",
        "run-0/seed-2",
        "run-10/seed-1",
        "run-10/seed-2",
    ]
    assert ["is damaged" in problems[0], "has format 9" in problems[1]] == [True, True]


def test_a_folder_of_damaged_runs_names_the_reasons(folder: Path) -> None:
    only = folder / "run-0" / "seed-1"
    (only / "summary.json").write_text("{")
    with pytest.raises(RunError, match=r"no runs in .*\n.*summary\.json is damaged"):
        collect([only])


@pytest.fixture
def mixed(folder: Path) -> Path:
    """With a setting whose seeds were evaluated in different rounds, and one that has no accuracy and no target."""
    for name, config, records in (
        ("early", {}, [[{"round": 1, "accuracy": 0.5, "bytes_up": 5}], [{"round": 2, "accuracy": 0.5, "bytes_up": 5}]]),
        ("values", {"target": None}, [[{"round": 1, "loss": 0.5, "bytes_up": 5}]] * 2),
    ):
        for seed, lines in enumerate(records, 1):
            path = folder / name / f"seed-{seed}"
            path.mkdir(parents=True)
            raw = {**BASE, "name": name, "seed": seed, "algorithm": ALGORITHMS[0], **config}
            (path / "config.json").write_text(json.dumps(plain(parse(raw)) | {"format": 1}))
            (path / "summary.json").write_text(json.dumps({"rounds": 1, "loss": 0.5}))
            (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_mixed_folder_is_reported_in_parts(mixed: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra `view`")
    runs, problems = collect([mixed])
    document = describe_runs(runs, problems)
    parts = {part.title: part for section in document.sections for part in section.parts if not isinstance(part, str)}
    curve = parts["Accuracy over rounds"]
    assert {row["label"] for row in curve.draw().to_dict()["data"]["values"]} >= {
        "x_y: FedAvg, η = 0.1",
        "x_y: SCAFFOLD, η = 0.1",
    }
    early, values = curve.notes
    assert early.startswith("not shown: early: its runs share no range of x, one begins at 2, another ends at 1")
    assert values.startswith("not shown: values: no round has 'accuracy'")
    # over upload both seeds of `early` were evaluated after 5 bytes
    assert [note.split(":")[1] for note in parts["Accuracy over upload"].notes] == [" values"]
    text = page(document)
    assert "its runs share no range of x" in text
    assert text.count("<svg") == text.count("<figure>")


def test_settings_that_cannot_be_compared_pairwise_are_named(mixed: Path) -> None:
    runs, problems = collect([mixed])
    text = markdown(describe_runs(runs, problems))
    assert "left out, as they have no accuracy: values" in text
    assert "left out, as they have another target or none: values" in text


def test_a_chart_that_cannot_be_drawn_gives_its_reason(mixed: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra `view`")
    runs, problems = collect([mixed / "early"])
    text = page(describe_runs(runs, problems))
    assert "not drawn: early: its runs share no range of x" in text
    assert text.count("<svg") == text.count("<figure>") - 1


def test_a_report_states_its_date_source_and_version(folder: Path) -> None:
    runs, problems = collect([folder])
    made = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
    source = describe_source([Path("runs"), Path("<more>")], made)
    assert source == f"Made on 4 March 2026, 05:06 UTC by Fedge {version('fedge')} from runs, <more>"
    document = describe_runs(runs, problems, source=source)
    assert "from runs, &lt;more&gt;</p>" in page(document)
    assert "from runs, &lt;more>" in markdown(document)


def test_tables_can_be_sorted_and_the_best_cells_follow_the_direction_of_the_field(folder: Path) -> None:
    runs, problems = collect([folder])
    results = next(part for part in describe_runs(runs, problems).sections[0].parts if isinstance(part, TableCells))
    names = [row[0] for row in results.rows]
    assert names == ["FedAvg, η = 0.1", "FedAvg, η = 0.5", "SCAFFOLD, η = 0.1"]
    # accuracies 0.515, 0.615, 0.715: the last is best; all reach the target in 2 rounds, so no cost is
    assert results.best == {(2, results.head.index("accuracy\n(%)"))}
    text = page(describe_runs(runs, problems))
    table = text[text.index("<table") : text.index("</table>")]
    assert table.startswith('<table class="sortable">')
    assert table.count("<button") == len(results.head)
    assert table.count('class="best"') == 1
    assert "**71.5 (71.0–72.0)**" in markdown(describe_runs(runs, problems))


def test_a_report_has_the_chosen_baseline_and_the_importance_of_settings(folder: Path) -> None:
    runs, problems = collect([folder])
    document = describe_runs(runs, problems, baseline="scaffold")
    parts = {part.title: part for section in document.sections for part in section.parts if not isinstance(part, str)}
    paired = parts["Accuracy against SCAFFOLD, η = 0.1"]
    # each seed is 0.2 and 0.1 below
    assert [row[:2] for row in paired.rows] == [["FedAvg, η = 0.1", "2 of 2"], ["FedAvg, η = 0.5", "2 of 2"]]
    assert [row[2].partition("±")[0] for row in paired.rows] == ["−20.00", "−10.000"]
    importance = parts["Parameter importance for accuracy"]
    # SS 2 * (0.1^2 + 0 + 0.1^2) = 0.04 between settings, 6 * 0.005^2 = 0.00015 between seeds
    shares = {row[0]: row[1] for row in importance.rows}
    assert shares["seeds"] == "0.4"
    with pytest.raises(ConfigError, match="baseline: no group of runs is 'nothing'"):
        describe_runs(runs, problems, baseline="nothing")


@pytest.mark.parametrize(
    "title", ["*a* and **b**", "_a_ and __b__", "snake_case, 2*3", "a &lt; b &#42; c & d", "`a` [b](c)"]
)
def test_a_title_is_escaped_in_markdown(title: str, folder: Path) -> None:
    shown = MarkdownIt("commonmark").render(markdown(describe_runs(*collect([folder]), title)))
    assert shown.startswith(f"<h1>{escape(title)}</h1>\n")
