# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every file of the tree: licence, formatting, versions, and that it is built."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import datapath
from datapath.native import paths

ROOT = paths.ROOT
FOLDERS = ("datapath", "experiments", "setup", "tests", "tools", ".ci")
HEADER = re.compile(r"SPDX-License-Identifier: GPL-2\.0-only OR BSD-2-Clause$", re.MULTILINE)
SOURCE_SUFFIXES = {".c", ".h", ".py", ".sh", ".map", ".j2", ".css", ".js"}
# The formatter whose opinion the tree follows; others differ in small things.
CLANG_FORMAT = "14"


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES or path.name in {"meson.build", "run"}:
                yield path
    yield from (ROOT / name for name in ("dpctl", "Makefile", "meson.build", "pyproject.toml"))


def test_every_source_file_names_its_licence() -> None:
    files = [path for path in sources() if path.is_file() and path.stat().st_size]
    assert len(files) > 50
    assert [
        str(path.relative_to(ROOT))
        for path in files
        if not HEADER.search("\n".join(path.read_text().splitlines()[:4]).replace(" */", ""))
    ] == []


@pytest.mark.parametrize(("suffix", "most"), [(".c", 500), (".h", 500), (".py", 450)])
def test_files_of_the_package_are_short(suffix: str, most: int) -> None:
    """A longer one has more than one responsibility, and is split along them."""
    files = (ROOT / "datapath").rglob(f"*{suffix}")
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in files}
    assert {name: count for name, count in lines.items() if count >= most} == {}


def test_functions_of_the_package_fit_on_a_screen() -> None:
    """Python: 60 lines with the docstring; C: 80."""
    long = [
        f"{path.relative_to(ROOT)}: {name}, {count} lines"
        for suffix, lengths, most in ((".py", python_functions, 60), (".c", c_functions, 80))
        for path in sorted(paths.PACKAGE.rglob(f"*{suffix}"))
        for name, count in lengths(path.read_text())
        if count > most
    ]
    assert long == []


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    """(name, lines) of each."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def c_functions(text: str) -> Iterator[tuple[str, int]]:
    """(first line, lines) of each, as clang-format lays them out."""
    for found in re.finditer(r"^(\w.*(?:\n[ \t].*)*)\n\{\n((?:(?!\}).*\n)*)\}", text, re.MULTILINE):
        yield found[1].partition("\n")[0], found[0].count("\n") + 1


def test_long_functions_are_seen() -> None:
    body = "\tcall();\n" * 80
    assert list(c_functions(f"int x;\n\nint f(int a,\n      int b)\n{{\n{body}}}\n")) == [
        ("int f(int a,", 84)
    ]
    assert list(python_functions("def f():\n    a = 1\n    return a\n")) == [("f", 3)]


def c_sources() -> list[str]:
    return [str(path) for path in sources() if path.suffix in {".c", ".h"}]


def test_c_is_formatted() -> None:
    tool = shutil.which("clang-format")
    version = tool and re.search(
        r"version (\d+)", subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
    )
    if not tool or not version or version[1] != CLANG_FORMAT:
        pytest.skip(f"needs clang-format {CLANG_FORMAT}, which is that of Debian 12")
    result = subprocess.run(
        [tool, "--dry-run", "--Werror", *c_sources()], capture_output=True, text=True, check=False
    )
    wrong = {line.split(":")[0] for line in result.stderr.splitlines() if "error:" in line}
    assert sorted(wrong) == [], "run: make format"


def test_every_c_file_is_built() -> None:
    """A file that no meson.build names is not compiled, and nobody would notice."""
    listing = subprocess.run(
        [Path(sys.executable).parent / "meson", "introspect", "--targets", ROOT / "build"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    built = {
        Path(source)
        for target in json.loads(listing)
        for group in target["target_sources"]
        for source in group.get("sources", [])
    }
    # Tests may compile small programs of their own by themselves.  What runs in a host's kernel is
    # compiled against its types, when a run needs it (tests/lanes/test_tcp_control.py).
    built |= set((paths.PACKAGE / "cc/tcp").glob("*.bpf.c"))
    files = {path for path in sources() if path.suffix == ".c" and paths.PACKAGE in path.parents}
    assert sorted(str(path.relative_to(ROOT)) for path in files - built) == []


def test_one_version() -> None:
    project = (ROOT / "meson.build").read_text()
    stated = re.search(r"^\s*version: '([^']+)'", project, re.MULTILINE)
    assert stated
    assert datapath.__version__ == stated[1]


def test_lock_covers_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        re.split(r"[<>=!~ ;\[]", line)[0].lower().replace(".", "-").replace("_", "-")
        for line in [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    }
    lock = (ROOT / "setup" / "lock.txt").read_text()
    locked = set(re.findall(r"^([a-z0-9.-]+)==", lock, re.MULTILINE))
    # A compiler, which a tree has from Debian.
    assert wanted - locked == {"ziglang"}
    assert "://" not in lock


@pytest.mark.parametrize("name", ["docs", "wheel"])
def test_a_group_has_the_versions_of_the_lock(name: str) -> None:
    """They are installed into the same environment."""
    pinned = re.compile(r"^([a-z0-9.-]+)==([^ ]+)", re.MULTILINE)
    lock = dict(pinned.findall((ROOT / "setup" / "lock.txt").read_text()))
    group = dict(pinned.findall((ROOT / "setup" / f"{name}.txt").read_text()))
    assert {
        key: version for key, version in group.items() if lock.get(key, version) != version
    } == {}
