# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each rule of the layers finds a violation that is planted in a copy of the tree."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from datapath.native import paths
from tests.build import layers

pytestmark = pytest.mark.compute

CONTRACT = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
ROWS = [re.split(r" [|:] ", row) for row in CONTRACT["contracts"][0]["layers"]]
FORBIDDEN = [
    (folder, other)
    for folder, allowed in layers.MAY_INCLUDE.items()
    for other in sorted({name.split("/")[0] for name in layers.MAY_INCLUDE} - allowed)
]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An empty package with the folders of ours."""
    for folder in layers.MAY_INCLUDE:
        (tmp_path / "datapath" / folder).mkdir(parents=True, exist_ok=True)
    return tmp_path / "datapath"


@pytest.mark.parametrize(("folder", "other"), FORBIDDEN)
def test_an_include_that_does_not_point_down(package: Path, folder: str, other: str) -> None:
    (package / folder / "planted.h").write_text(f'# include "{other}/any.h"\n')
    assert layers.wrong_includes(package, folder) == [f"{folder}/planted.h includes {other}/any.h"]


def test_an_include_that_goes_up_by_its_path(package: Path) -> None:
    (package / "wire" / "planted.c").write_text('#include "../engine/engine.h"\n')
    assert len(layers.wrong_includes(package, "wire")) == 1


def test_a_folder_with_c_that_has_no_rule(package: Path) -> None:
    (package / "engine" / "xyz").mkdir()
    (package / "engine" / "xyz" / "planted.c").touch()
    assert layers.folders_without_a_rule(package) == ["engine/xyz"]


@pytest.mark.parametrize("kind", ["rc", "new"])
def test_a_file_for_all_qps_that_knows_a_type(package: Path, kind: str) -> None:
    for name in ("planted.c", *layers.KNOW_TYPES):
        (package / "engine" / name).write_text(f'#include "engine/{kind}/{kind}.h"\n')
    assert layers.knowers_of_qp_types(package) == [
        f"engine/planted.c includes engine/{kind}/{kind}.h"
    ]


@pytest.mark.parametrize("folder", layers.PURE)
def test_a_system_header_below_the_ports(package: Path, folder: str) -> None:
    (package / folder / "planted.c").write_text("#include <string.h>\n#include <time.h>\n")
    assert layers.system_headers(package, folder) == [f"{folder}/planted.c includes <time.h>"]


@pytest.mark.parametrize(
    "call", ["clock_gettime(0, 0)", "socket(0, 0, 0)", "pthread_create(0, 0, 0, 0)", "PyRun_Any()"]
)
def test_a_call_of_the_system_below_the_ports(tmp_path: Path, call: str) -> None:
    (tmp_path / "planted.c").write_text(
        "int ours(void);\n"
        "int ours(void)\n{\n\treturn 0;\n}\n"
        f"int planted(void)\n{{\n\treturn ours() + {call};\n}}\n"
    )
    target = tmp_path / "planted.o"
    compiler = ["cc", "-c", "-fPIC", "-w", "-std=gnu89", "-fno-builtin"]
    subprocess.run([*compiler, "-o", target, tmp_path / "planted.c"], check=True)
    name = call.partition("(")[0]
    assert layers.system_symbols([target]) == {name}
    assert layers.python_symbols(target) == ({name} if name.startswith("Py") else set())


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says of a copy in which every layer imports the one above it, the
    modules of one layer each other, and the lowest layer all.
    """
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(
        paths.PACKAGE,
        tree / "datapath",
        ignore=lambda folder, names: [
            name
            for name in names
            if name == "__pycache__" or not (name.endswith(".py") or (Path(folder) / name).is_dir())
        ],
    )
    shutil.copy(paths.ROOT / "pyproject.toml", tree)
    for above, below in upward():
        module = tree / "datapath" / below
        target = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        with target.open("a") as stream:
            stream.write(f"\n\ndef planted_{above}():\n    import datapath.{above}\n")
    return " ".join(layers.broken_imports(tree).split())


def upward() -> list[tuple[str, str]]:
    """(imported, importing) that the contract forbids, one for each neighbour of a layer."""
    pairs = [(up, low) for ups, lows in itertools.pairwise(ROWS) for up in ups for low in lows]
    siblings = [(a, b) for row in ROWS if len(row) == 2 for a, b in itertools.permutations(row)]
    return pairs + siblings


@pytest.mark.parametrize(("above", "below"), upward())
def test_an_import_that_does_not_point_down(broken: str, above: str, below: str) -> None:
    assert f"datapath.{below} is not allowed to import datapath.{above}" in broken


def test_a_question_for_a_lane_by_its_name(package: Path) -> None:
    for folder in ("cli", "lanes"):
        (package / folder).mkdir(exist_ok=True)
        (package / folder / "planted.py").write_text(
            'if topology.lane == "vm": pass\nif lane not in ("vm", "ssh"): pass\n'
        )
    assert [line.partition(":")[0] for line in layers.askers_for_a_lane(package)] == [
        "cli/planted.py"
    ] * 2


def test_a_heavy_import(tmp_path: Path) -> None:
    (tmp_path / "datapath").mkdir()
    (tmp_path / "datapath" / "__init__.py").touch()
    (tmp_path / "datapath" / "cli.py").write_text("import numpy\n")
    assert layers.heavy_modules(tmp_path) == {"numpy"}
