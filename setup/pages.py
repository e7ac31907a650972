# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Gathers the pages of the site: `pages.py FOLDER`, for `make docs`.

The folder gets the Markdown of the tree, every other file that a page links to, and the style and
scripts of the site, where each has the same place as in the tree.  So the links of the pages are
those of the site.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")


def pages() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    yield from (ROOT / "docs").rglob("*.md")


def linked(page: Path) -> Iterator[Path]:
    """Files of the tree that a page links to."""
    for target in LINK.findall(page.read_text()):
        file = (page.parent / target).resolve()
        if file.is_file() and file.is_relative_to(ROOT):
            yield file


def main() -> None:
    out = Path(sys.argv[1])
    own = (ROOT / "docs" / name for name in ("site.css", "site.js", "iframe-worker.js"))
    for file in {*own, *(file for page in pages() for file in (page, *linked(page)))}:
        place = out / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)


if __name__ == "__main__":
    main()
