# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The site of `make docs`: every page has its place, and no link is dead, also in the reference."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from datapath.cli.reference import markdown
from datapath.cli.reference.__main__ import PAGES, write
from datapath.native import paths
from tests.build.test_docs import dead_links

pytestmark = pytest.mark.compute


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mkdocs gets."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    subprocess.run([sys.executable, paths.ROOT / "setup" / "pages.py", folder], check=True)
    write(folder / "reference")
    return folder


def test_links_lead_to_files_of_the_site(pages: Path) -> None:
    dead = {str(page): list(dead_links(page)) for page in pages.rglob("*.md")}
    assert {page: links for page, links in dead.items() if links} == {}


def test_every_page_has_a_place(pages: Path) -> None:
    nav = (paths.ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    placed = re.findall(r"(\S+\.md)$", nav, re.MULTILINE)
    assert sorted(placed) == sorted(str(page.relative_to(pages)) for page in pages.rglob("*.md"))


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("commands", "## dpctl cc hunt"),
        ("experiment-format", "| `loss` |"),
        ("output-formats", "### top TopQp"),
        ("metrics", "| `goodput` |"),
        ("algorithms", "## swift"),
        ("algorithm-records", "| `cwnd_bytes` |"),
        ("device-keys", "| `ecn` |"),
    ],
)
def test_the_reference_is_made_of_the_programs(pages: Path, page: str, words: str) -> None:
    assert words in (pages / "reference" / f"{page}.md").read_text()


def test_all_pages_of_the_reference_are_tried(pages: Path) -> None:
    assert {page.stem for page in (pages / "reference").iterdir()} == set(PAGES)


def test_text_stands_for_itself() -> None:
    """A page shows what help says; what is in backquotes is code there."""
    found = markdown.text("1<=x & *all* of `a_b <c>` in a_b[0]")
    assert found == r"1&lt;=x &amp; \*all\* of `a_b <c>` in a\_b\[0\]"


def test_figures_of_pages_have_a_ground() -> None:
    """Their ink is black, and a reader's page may be dark."""
    for figure in (paths.ROOT / "docs").glob("*.svg"):
        text = figure.read_text()
        size = re.search(r'viewBox="0 0 (\S+) (\S+)"', text)
        assert size, figure
        width, height = size.groups()
        first = re.search(r"<path [^>]*>", text.partition('<g id="figure_1">')[2])
        assert first, figure
        path = " ".join(first[0].split()).replace(' "', '"')
        assert f'd="M 0 {height} L {width} {height} L {width} 0 L 0 0 z"' in path
        assert "fill: #ffffff" in path
