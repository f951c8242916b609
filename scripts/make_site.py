"""Build the documentation site into build/site, strictly: a broken link or a page without a section is an error.

python scripts/make_site.py             # or: make site
python scripts/make_site.py --to FOLDER # the site is FOLDER/site

Pages are copied to FOLDER/pages first. There, a link that leaves docs/ leads to a copy of that file: a Markdown page, a
page that shows the source, or the file as it is. The pages in docs/ stay readable on GitHub, and need no plugin.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

import tomli_w

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PIPE = r"\|"
SETTINGS = DOCS / "site" / "site.toml"

_FENCE = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2$", re.DOTALL | re.MULTILINE)
_STATES = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r'(?P<before>\]\(|\b(?:src|srcset|href)=")(?P<path>[^)\s"#]+)(?P<rest>[^)\s"]*)')
# Code that is short, and that browsers would break after a hyphen.
_HYPHENS = re.compile(r"(?:^|(?<=[ (]))`(?=\S*-)(?:[^\s`]{2,20}|-[^`]{1,11})`", re.MULTILINE)
# Longer code with an option, such as --set: it may break, but not after the hyphens.
_OPTIONS = re.compile(r"(?:^|(?<=[ (]))`((?:[^`]*\s)?--?\w[^`]*)`(?!\{)", re.MULTILINE)
_SOURCES = {".py": "python", ".toml": "toml", ".txt": "text", ".cff": "yaml", ".yml": "yaml", "": "sh"}
_HIDDEN = "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"  # lines of 120 characters need the room


class SiteError(Exception):
    """The site cannot be built because of a page or a link of the documentation."""


def place(path: Path) -> PurePosixPath:
    """Return the path among the site's pages of a file or folder of the repository."""
    if path.is_relative_to(DOCS):
        return PurePosixPath(path.relative_to(DOCS))
    names = (part.removeprefix(".") for part in path.relative_to(ROOT).parts)  # the generator leaves hidden files out
    inside = PurePosixPath("repository", *names)
    if path.is_dir():
        return inside / "index.md"
    if path.suffix == ".md":
        return inside.with_name("index.md") if path.name == "README.md" else inside
    return inside.with_name(f"{path.name}.md") if path.suffix in {*_SOURCES, ".ipynb"} else inside


def content(path: Path) -> str:
    """Return the Markdown of a page of the site, with links as in the repository."""
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.is_file())
        return f"# {path.name}\n\n" + "".join(f"- [`{each.name}`]({each.name})\n" for each in files)
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        return "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"]) + "\n"
    if path.suffix != ".md":
        language = _SOURCES[path.suffix] if path.suffix or text.startswith("#!") else "text"
        return f"{_HIDDEN}# {path.name}\n\n````{language}\n{text}````\n"
    text = _STATES.sub(_table_of_states, text)
    text = re.sub(r"^\|.*", lambda row: re.sub(r"`([^`]+)`", _pipes, row[0]), text, flags=re.MULTILINE)
    return re.sub(r"^( *```)console\b", r"\1sh", text, flags=re.MULTILINE)  # in console blocks, text is output


def _pipes(code: re.Match[str]) -> str:
    """Return code in a table without the backslash before a pipe, which GitHub hides and the generator shows.

    A line may break after a pipe, or a long list of choices would leave no room for the other columns.
    """
    return f"<code>{escape(code[1]).replace(PIPE, '&#124;<wbr>')}</code>" if PIPE in code[1] else code[0]


def _options(code: re.Match[str]) -> str:
    """Code as HTML, in which an option stays on one line and nothing is Markdown."""
    text = re.sub(r"[*_|\[\]\\]", lambda special: f"&#{ord(special[0])};", escape(code[1], quote=False))
    return "<code>" + re.sub(r"(?<!\S)--?\w\S*", r'<span class="whole">\g<0></span>', text) + "</code>"


def _cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"


def _table_of_states(drawing: re.Match[str]) -> str:
    """Return a state diagram as a table, because drawing a diagram needs a script from another server."""
    arrows = re.findall(r"^ *(\S+) --> (\S+)(?: : (.+))?$", drawing[1], re.MULTILINE)
    rows = [f"| {_state(before)} | {when} | {_state(after)} |" for before, after, when in arrows]
    return "\n".join(["| from | when | to |", "|---|---|---|", *rows])


def _state(name: str) -> str:
    return "●" if name == "[*]" else f"`{name}`"


def title(path: Path) -> str:
    if path == ROOT / "README.md":
        return "Overview"
    heading = re.search(r"^# (.+)$", content(path), re.MULTILINE)
    if heading is None:
        raise SiteError(f"{path.relative_to(ROOT)}: a page begins with a heading, `# Title`")
    return heading[1].replace("`", "")


def stage(path: Path, target: Path) -> Iterator[Path]:
    """Write a page or copy a file, and yield the files of the repository that it links to."""
    there = target / place(path)
    there.parent.mkdir(parents=True, exist_ok=True)
    if there.suffix != ".md":
        shutil.copyfile(path, there)
        return
    folder = path if path.is_dir() else path.parent
    found: list[Path] = []

    def lead(link: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", link["path"]):
            return link[0]
        to = Path(os.path.normpath(folder / link["path"]))
        if not to.exists() or not to.is_relative_to(ROOT):
            raise SiteError(f"{path.relative_to(ROOT)}: {link['path']} does not exist")
        to = next((to / name for name in ("index.md", "README.md") if (to / name).is_file()), to)
        found.append(to)
        return link["before"] + os.path.relpath(place(to), place(path).parent) + link["rest"]

    def prose(part: str) -> str:
        return _OPTIONS.sub(_options, _HYPHENS.sub(r"\g<0>{ .whole }", _LINK.sub(lead, part)))

    text, end = content(path), 0
    parts = []
    for fence in _FENCE.finditer(text):
        parts += [prose(text[end : fence.start()]), fence[0]]
        end = fence.end()
    there.write_text("".join([*parts, prose(text[end:])]), "utf-8")
    yield from found


def stage_all(target: Path) -> None:
    """Write every file of docs/, and every other file that pages link to."""
    waiting = [path for path in sorted(DOCS.rglob("*")) if path.is_file() and path != SETTINGS]
    done = set()
    while waiting:
        path = waiting.pop()
        if path not in done:
            done.add(path)
            waiting += stage(path, target)


def sections(settings: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """Return the sections with their pages: files, or further sections.

    Raises `SiteError` if a page does not exist, is named twice, or is missing.
    """
    named = [DOCS / page for section in settings["section"] for page in _named(section["pages"])]
    missing = [page for page in named if not page.is_file()]
    pages = set(DOCS.rglob("*.md"))

    def expand(pattern: Any) -> list[Any]:
        if isinstance(pattern, dict):
            return [(pattern["title"], [page for each in pattern["pages"] for page in expand(each)])]
        if "*" in pattern:
            return sorted({*DOCS.glob(pattern)} - {*named}, key=lambda page: title(page).lower())
        return [Path(os.path.normpath(DOCS / pattern))]

    found = [(each["title"], [page for part in each["pages"] for page in expand(part)]) for each in settings["section"]]
    listed = [page for _, parts in found for page in _files(parts)]
    twice = {page for page in listed if listed.count(page) > 1}
    for problem, those in (("no such page", missing), ("in no section", pages - {*listed}), ("in two sections", twice)):
        if those:
            names = ", ".join(sorted(os.path.relpath(page, DOCS) for page in those))
            raise SiteError(f"docs/site/site.toml: {problem}: {names}")
    return found


def _named(pages: list[Any]) -> Iterator[str]:
    for page in pages:
        if isinstance(page, dict):
            yield from _named(page["pages"])
        elif "*" not in page:
            yield page


def _files(parts: list[Any]) -> Iterator[Path]:
    for part in parts:
        if isinstance(part, tuple):
            yield from _files(part[1])
        else:
            yield part


def navigation(parts: list[Any]) -> list[dict[str, Any]]:
    return [
        {part[0]: navigation(part[1])} if isinstance(part, tuple) else {title(part): str(place(part))} for part in parts
    ]


def build(folder: Path) -> Path:
    """Build the site and return its folder.

    Raises `SiteError` if a link of a page leads nowhere, and `CalledProcessError` if the generator warns.
    """
    settings = tomllib.loads(SETTINGS.read_text("utf-8"))
    nav = navigation(sections(settings))
    for part in ("pages", "site"):
        shutil.rmtree(folder / part, ignore_errors=True)
    stage_all(folder / "pages")
    config = folder / "zensical.toml"
    project = {**settings["project"], "docs_dir": "pages", "site_dir": "site", "nav": nav}
    config.write_text(tomli_w.dumps({"project": project}), "utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(config)]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "site"


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--to", type=Path, default=ROOT / "build", metavar="FOLDER")
    try:
        print(build(parser.parse_args().to.resolve()) / "index.html")
    except (SiteError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
