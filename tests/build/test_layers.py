# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Imports, includes and symbols point only down."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from datapath.lanes.lane import LANES
from datapath.lanes.spec import Topology
from datapath.native import paths
from datapath.workloads import REGISTRY

PACKAGE = paths.PACKAGE

# What the C of each folder may include from the tree.  BPF programs share
# their headers with the port, and link/ge_time.h with the link model.
MAY_INCLUDE = {
    "wire": {"wire"},
    "link": {"link", "wire"},
    "engine": {"engine", "wire"},
    "engine/rc": {"engine", "wire"},
    "engine/ud": {"engine", "wire"},
    "io": {"io", "engine", "wire", "xdp"},
    "verbs": {"verbs", "io", "engine", "wire"},
    "xdp": {"xdp", "link", "wire"},
    "fabric/emulator": {"fabric", "io", "link", "wire", "xdp"},
    "fabric/sim": {"fabric", "engine", "link", "wire"},
    "workloads/traffic": {"fabric"},
    "lanes/keeper": {"lanes", "xdp"},
    "lanes/probe": {"wire"},
    "fabric": {"fabric", "io", "engine", "wire"},
}

# These know the types of QPs: the table of types, and the memory that windows take.
KNOW_TYPES = {"qp.c", "engine.c", "check.c"}

PURE = ("wire", "link", "engine", "engine/rc", "engine/ud")

# System headers that they may use: language and memory, no system.
PURE_HEADERS = {
    "assert.h",
    "endian.h",
    "errno.h",
    "inttypes.h",
    "isa-l.h",
    "isa-l/crc.h",
    "limits.h",
    "math.h",
    "stdalign.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "stdlib.h",
    "string.h",
}

# Symbols that they may leave to the compiler, the C library and ISA-L.
PURE_SYMBOLS = re.compile(
    r"mem(cpy|move|set|cmp|chr)|str(len|n?cmp|n?cpy|chr)"
    r"|malloc|calloc|realloc|free|aligned_alloc|posix_memalign"
    r"|abort|__assert_fail|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_"
    r"|__(memcpy|memmove|memset)_chk|__popcountdi2|__cpu_model"
    r"|crc32_gzip_refl|crc32_ieee|fabs|fmin|fmax|sqrt|ceil|floor|log|exp|pow"
)

INCLUDE = re.compile(r'^\s*#\s*include\s+(?P<open>[<"])(?P<name>[^>"]+)[>"]', re.MULTILINE)


def c_files(folder: str) -> list[Path]:
    return sorted((PACKAGE / folder).glob("*.[ch]"))


def includes(path: Path) -> Iterator[tuple[str, bool]]:
    """(name, whether between quotes) of each include."""
    for match in INCLUDE.finditer(path.read_text()):
        yield match["name"], match["open"] == '"'


@pytest.mark.parametrize("folder", MAY_INCLUDE)
def test_c_includes_point_down(folder: str) -> None:
    assert c_files(folder)
    wrong = [
        f"{path.relative_to(PACKAGE)} includes {name}"
        for path in c_files(folder)
        for name, quoted in includes(path)
        # A name without a folder is that of a generated header of the same folder.
        if quoted and "/" in name and name.split("/")[0] not in MAY_INCLUDE[folder]
    ]
    assert wrong == []


def test_what_qps_share_knows_no_type_of_qp() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} includes {name}"
        for path in c_files("engine")
        for name, _ in includes(path)
        if name.startswith(("engine/rc/", "engine/ud/")) and path.name not in KNOW_TYPES
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", PURE)
def test_the_engine_includes_no_system_header(folder: str) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} includes <{name}>"
        for path in c_files(folder)
        for name, quoted in includes(path)
        if not quoted and name not in PURE_HEADERS
    ]
    assert wrong == []


def undefined_symbols(path: Path) -> set[str]:
    """Names that the object or shared library at path wants from elsewhere."""
    with path.open("rb") as stream:
        return {
            symbol.name
            for section in ELFFile(stream).iter_sections()
            if isinstance(section, SymbolTableSection)
            for symbol in section.iter_symbols()
            if symbol["st_shndx"] == "SHN_UNDEF"
            and symbol["st_info"]["bind"] == "STB_GLOBAL"
            and symbol.name
        }


def defined_symbols(path: Path) -> set[str]:
    with path.open("rb") as stream:
        return {
            symbol.name
            for section in ELFFile(stream).iter_sections()
            if isinstance(section, SymbolTableSection)
            for symbol in section.iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF"
        }


def test_the_engine_links_no_socket_clock_thread_or_python() -> None:
    """Of the objects of libdpcore.a, in the build without sanitizers."""
    objects = sorted((paths.ROOT / "build" / "datapath" / "libdpcore.a.p").glob("*.o"))
    sources = (path.relative_to(PACKAGE) for folder in PURE for path in c_files(folder))
    assert {path.name.removesuffix(".o") for path in objects} == {
        str(path).replace("/", "_") for path in sources if path.suffix == ".c"
    }
    wanted = set().union(*map(undefined_symbols, objects))
    ours = set().union(*map(defined_symbols, objects))
    assert {name for name in wanted - ours if not PURE_SYMBOLS.fullmatch(name)} == set()


@pytest.mark.parametrize("library", [paths.core_library, paths.verbs_library])
def test_libraries_need_no_python(library: object) -> None:
    assert callable(library)
    names = undefined_symbols(library())
    assert {name for name in names if re.match(r"_?Py|PY|numba|NRT_", name)} == set()


def test_python_imports_point_down() -> None:
    """The contract is in pyproject.toml; here each way of breaking it is one test failure."""
    tool = Path(sys.executable).parent / "lint-imports"
    result = subprocess.run(
        [tool, "--no-cache"], cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_only_lanes_ask_for_a_lane_by_its_name() -> None:
    """Other layers ask for the properties in lanes/lane.py, which a new lane has too."""
    asks = re.compile(r"\blane\s*(==|!=|(not )?in \(|(not )?in _?[A-Z])")
    wrong = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "lanes"
        for line in path.read_text().splitlines()
        if asks.search(line)
    ]
    assert wrong == []


def test_each_lane_of_the_file_has_its_row() -> None:
    lanes = get_args(Topology.model_fields["lane"].annotation)
    assert set(lanes) == set(LANES)
    keys = [key for lane in LANES.values() for key in lane.keys]
    assert set(keys) <= set(Topology.model_fields)
    assert len(keys) == len(set(keys))


def test_set_up_installs_what_lanes_and_workloads_start() -> None:
    rows = (paths.ROOT / "setup" / "packages.txt").read_text().splitlines()
    known = {row.split()[0].partition(">=")[0] for row in rows if row and row[0] != "#"}
    tools = [tool for lane in LANES.values() for tool in lane.tools]
    tools += [tool for workload in REGISTRY.values() for tool in workload.tools]
    assert {tool.package for tool in tools} - known == set()


def test_the_doors_name_files_that_exist() -> None:
    text = (paths.ROOT / "CONTRIBUTING.md").read_text()
    doors = text.partition("## Doors\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:datapath|tests|docs|setup)/[\w./-]+)`", doors))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (paths.ROOT / name).exists()] == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`dpctl --help` must not wait for pandas and its like."""
    code = "import sys, datapath.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    heavy = {"pandas", "numpy", "numba", "matplotlib", "pyroute2", "scapy", "pyarrow", "scipy"}
    assert heavy & set(result.stdout.split()) == set()
