"""The documentation site builds strictly; its links and anchors lead somewhere; it loads nothing from elsewhere."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from docs.pages import DOCS, ROOT, name_of

SHOWN = [
    "index.html", "algorithms/scaffold.html", "view.html", "reference/commands.html", "troubleshooting.html",
    "how-to/faq.html", "repository/index.html", "repository/src/fedge/algorithms/scaffold.py.html",
]  # fmt: skip
HERE = ("file:", "data:", "blob:")
NOWHERE = "http://127.0.0.1:9"  # where nobody answers


def script() -> ModuleType:
    spec = spec_from_file_location("make_site", ROOT / "scripts" / "make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_site = script()


class Page(HTMLParser):
    """What a page of the site links to, loads, and can be linked to by."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.headings: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.classes |= set(given.get("class", "").split())
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link":
            self.loads.append(given["href"])
        self.loads += [given["src"]] if "src" in given else []
        self.loads += [part.split()[0] for part in given.get("srcset", "").split(",") if part.split()]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("zensical", reason="needs the extra `docs`")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            patch.setenv(name, NOWHERE)
        yield make_site.build(tmp_path_factory.mktemp("build"))


@cache
def read(file: Path) -> Page:
    return Page(file.read_text("utf-8"))


def pages(site: Path) -> list[Path]:
    return [file for file in sorted(site.rglob("*.html")) if file.relative_to(site).parts[0] != "examples"]


def is_elsewhere(link: str) -> bool:
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


def test_every_page_is_built(site: Path) -> None:
    assert [
        name_of(page)
        for page in DOCS.rglob("*.md")
        if not (site / page.relative_to(DOCS)).with_suffix(".html").is_file()
    ] == []


def test_links_and_anchors_of_the_site(site: Path) -> None:
    broken = []
    for file in pages(site):
        page = read(file)
        for link in [*page.links, *page.loads]:
            if is_elsewhere(link) or file.name == "404.html":  # which is served for any address
                continue
            parts = urlsplit(link)
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (
                parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in read(target).anchors
            ):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert broken == []


def test_headings_skip_no_level(site: Path) -> None:
    wrong = {
        file.name: levels
        for file in pages(site)
        for levels in [read(file).headings]
        if levels[:1] != [1] or levels.count(1) > 1 or any(b > a + 1 for a, b in itertools.pairwise(levels))
    }
    assert wrong == {}


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for file in pages(site):
        page = read(file)
        assert [link for link in page.loads if is_elsewhere(link) and not link.startswith("data:")] == [], file
        assert not page.classes & {"mermaid", "glightbox", "arithmatex"}, (
            f"{file}: the theme's script loads more for these"
        )
    for file in site.rglob("*.css"):
        urls = re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s;]+)", file.read_text("utf-8"))
        assert [url for url in urls if is_elsewhere(url) and not url.startswith("data:")] == [], file


def test_links_out_of_docs_lead_to_copies(site: Path) -> None:
    assert any("repository/CONTRIBUTING.html" in link for link in read(site / "architecture.html").links)
    assert "highlight" in read(site / "repository/src/fedge/algorithms/scaffold.py.html").classes


def test_asterisks_of_formulas_are_not_read_as_emphasis(site: Path) -> None:
    """`K*(W) or eta*(W)` would be shown without its asterisks, and partly in italics."""
    found = [
        f"{file.relative_to(site)}: {text[max(shown.start() - 20, 0) : shown.end() + 20]}"
        for file in pages(site)
        for text in [file.read_text("utf-8")]
        for shown in re.finditer(r"(?<=\w)<em>.*?</em>|<em>[^<]*</em>\w", text)
    ]
    assert found == []


def test_search_works_without_a_server(site: Path) -> None:
    """Browsers do not let a page from a file read other files, but load a script."""
    index = (site / "search.js").read_text("utf-8")
    assert '"location":"algorithms/scaffold.html"' in index
    assert "scaffold.py.html" not in index, "source files are not documentation"


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_as_shown(site: Path, browser: Any, serious: Callable[[Any], list[str]], width: int, scheme: str) -> None:
    """Of each kind one page: wide tables and pictures, long code, lists, source files. All are opened as files."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    tab.on("console", lambda message: problems.append(message.text))
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda request: None if request.url.startswith(HERE) else problems.append(request.url))
    for name in SHOWN:
        tab.goto((site / name).as_uri())
        wide = tab.evaluate("document.documentElement.scrollWidth")
        problems += [f"{name}: {wide} pixels in {width}"] if wide > width else []
        problems += [f"{name}: {finding}" for finding in serious(tab)]
    tab.close()
    assert problems == []


@pytest.mark.full
def test_search_as_a_reader_does(site: Path, browser: Any) -> None:
    tab = browser.new_page()
    tab.goto((site / "index.html").as_uri())
    tab.keyboard.press("Control+k")
    tab.keyboard.type("control variate")
    tab.locator("a[href*='algorithms/scaffold.html?h=']").first.wait_for(timeout=30_000)
    tab.close()


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (r"| `--format text\|json` | `text` |", "| <code>--format text&#124;<wbr>json</code> | `text` |"),
        (r'| `a` | "I" \| "II" | `b` |', r'| `a` | "I" \| "II" | `b` |'),
        (r"`not\|a row`", r"`not\|a row`"),
    ],
    ids=("in code", "between code", "not in a table"),
)
def test_pipes_in_tables(row: str, shown: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(row, "utf-8")
    assert make_site.content(page) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("with `--set`, or", "with `--set`{ .whole }, or"),
        ("| `--quiet, -q` | `text` |", "| `--quiet, -q`{ .whole } | `text` |"),
        ("[`--set`](page.md)", "[`--set`](page.md)"),
        (
            "`fedge run a_b_*.toml --set 'rounds=[1,\n2]'`",
            "<code>fedge run a&#95;b&#95;&#42;.toml <span class=\"whole\">--set</span> 'rounds=&#91;1,\n2&#93;'</code>",
        ),
        ("`fedge run a.toml` and `f.toml`", "`fedge run a.toml` and `f.toml`"),
        ("```sh\n`a-b`\n```", "```sh\n`a-b`\n```"),
    ],
    ids=("in a sentence", "in a table", "in a link", "long", "without a hyphen", "in a block"),
)
def test_code_does_not_break_after_a_hyphen(text: str, shown: str, tmp_path: Path) -> None:
    """`site/extra.css` has the class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_site, "ROOT", tmp_path)
        patch.setattr(make_site, "DOCS", tmp_path)
        page = tmp_path / "page.md"
        page.write_text(text, "utf-8")
        list(make_site.stage(page, tmp_path / "pages"))
    assert (tmp_path / "pages" / "page.md").read_text("utf-8") == shown


def test_states_are_shown_as_a_table() -> None:
    text = make_site.content(DOCS / "protocol.md")
    assert "mermaid" not in text
    assert "| `gathering` | enough clients are connected | `open` |\n" in text


SETTINGS = {"section": [{"title": "All", "pages": ["index.md", "*.md", "*/*.md"]}]}


def test_a_pattern_stands_for_the_pages_that_are_not_named() -> None:
    ((_, parts),) = make_site.sections(SETTINGS)
    assert parts[0] == DOCS / "index.md"
    assert sorted(parts) == sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize(
    ("pages", "problem"),
    [
        (["index.md", "gone.md", "*.md", "*/*.md"], "no such page: gone.md"),
        (["index.md", "*.md"], "in no section: algorithms/ce_fedavg.md, "),
        (["index.md", "index.md", "*.md", "*/*.md"], "in two sections: index.md"),
    ],
    ids=("missing", "forgotten", "twice"),
)
def test_sections_have_every_page_once(pages: list[str], problem: str) -> None:
    with pytest.raises(make_site.SiteError, match=re.escape(problem)):
        make_site.sections({"section": [{"title": "All", "pages": pages}]})


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    page = DOCS / "index.md"
    folder = tmp_path / "docs"
    shutil.copytree(DOCS, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_site, "ROOT", tmp_path)
        patch.setattr(make_site, "DOCS", folder)
        (folder / "index.md").write_text("# Index\n\n[gone](gone.md), `[not](a-link.md)`\n", "utf-8")
        with pytest.raises(make_site.SiteError, match=r"docs/index\.md: gone\.md does not exist"):
            list(make_site.stage(folder / page.name, tmp_path / "pages"))
