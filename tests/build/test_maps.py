# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each larger folder has a map: a comment at its door that names all of its files.

For Python the door is `__init__.py`; for C it is the first comment of one or more headers.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from datapath.native import paths

pytestmark = pytest.mark.compute

SMALL = 5
"""Files of one language that a folder may have without a map."""

FOUND_BY_FOLDER = {"cc/algorithms", "collectives/algorithms", "workloads/kinds"}
"""Folders of one kind of file, which code looks for by itself."""

FOLDERS = sorted(
    str(path.relative_to(paths.PACKAGE))
    for path in [paths.PACKAGE, *paths.PACKAGE.rglob("*")]
    if path.is_dir() and path.name != "__pycache__"
)


def unnamed(folder: Path) -> list[str]:
    """The files of a folder that its map does not name."""
    modules = {path.name for path in folder.glob("*.py")} - {"__init__.py", "__main__.py"}
    sources = {path.name for path in folder.glob("*.c")}
    left, package = [], python_map(folder)
    for files, text in ((modules, package), (sources, c_map(folder) + package)):
        if len(files) > SMALL:
            left += [name for name in files if not re.search(rf"\b{re.escape(name)}\b", text)]
    return sorted(left)


def python_map(folder: Path) -> str:
    init = folder / "__init__.py"
    return (init.is_file() and ast.get_docstring(ast.parse(init.read_text()))) or ""


def c_map(folder: Path) -> str:
    """The comments at the top of all headers."""
    found = (re.search(r"/\*\n.*?\*/", path.read_text(), re.DOTALL) for path in folder.glob("*.h"))
    return "\n".join(comment[0] for comment in found if comment)


@pytest.mark.parametrize("folder", [name for name in FOLDERS if name not in FOUND_BY_FOLDER])
def test_the_map_of_a_folder_is_whole(folder: str) -> None:
    assert unnamed(paths.PACKAGE / folder) == []


def test_a_file_that_no_map_names(tmp_path: Path) -> None:
    for number in range(SMALL + 1):
        (tmp_path / f"part{number}.c").touch()
        (tmp_path / f"part{number}.py").touch()
    names = [f"part{number}.c" for number in range(SMALL)]
    (tmp_path / "parts.h").write_text(f"/*\n * {' '.join(names)}\n */\n")
    (tmp_path / "__init__.py").write_text('"""part0.py, part1.py, part2.py, part3.py, part4.py"""')
    assert unnamed(tmp_path) == ["part5.c", "part5.py"]
