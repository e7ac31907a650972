# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rules of the layers: each takes a tree and tells what breaks it, one line for each."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

# What the C of each folder may include from the tree.  BPF programs share
# their headers with the port, and link/ge_time.h with the link model.
MAY_INCLUDE = {
    "posix": {"posix"},
    "wire": {"wire"},
    "link": {"link", "wire"},
    "link/impair": {"link", "wire"},
    "engine": {"engine", "wire"},
    "engine/rc": {"engine", "wire"},
    "engine/ud": {"engine", "wire"},
    "cm": {"cm", "wire"},
    "io": {"io", "engine", "posix", "wire", "xdp"},
    "verbs": {"verbs", "io", "engine", "posix", "wire"},
    "vnic": {"vnic", "io", "engine", "link", "posix", "wire"},
    "verbs/ucm": {"verbs", "cm", "io", "engine", "posix", "wire"},
    "xdp": {"xdp", "link", "wire"},
    "fabric/emulator": {"fabric", "io", "link", "posix", "wire", "xdp"},
    "fabric/sim": {"fabric", "engine", "link", "wire"},
    "collectives/live": {"collectives", "posix"},
    "collectives/nccl": {"collectives", "posix"},
    "workloads/connections": {"posix"},
    "workloads/mpi": {"posix"},
    "workloads/traffic": {"fabric", "posix", "wire"},
    "cc/tcp": {"cc"},
    "lanes/keeper": {"lanes", "posix", "xdp"},
    "lanes/pacer": {"lanes", "engine", "posix", "xdp"},
    "lanes/registrar": {"lanes"},
    "fabric": {"fabric", "io", "engine", "link", "wire"},
}

# These know the types of QPs: the table of types, and the memory that windows take.
KNOW_TYPES = {"qp.c", "engine.c", "check.c"}

PURE = ("wire", "link", "link/impair", "engine", "engine/rc", "engine/ud", "cm")

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

# Modules that would keep `dpctl --help` waiting.
HEAVY = {"pandas", "numpy", "numba", "matplotlib", "pyroute2", "scapy", "pyarrow", "scipy"}

_INCLUDE = re.compile(r'^\s*#\s*include\s+(?P<open>[<"])(?P<name>[^>"]+)[>"]', re.MULTILINE)
_LANE_ASKED = re.compile(r"\blane\s*(==|!=|(not )?in \(|(not )?in _?[A-Z])")
_PYTHON_SYMBOL = re.compile(r"_?Py|PY|numba|NRT_")


def c_files(package: Path, folder: str) -> list[Path]:
    return sorted((package / folder).glob("*.[ch]"))


def folders_without_a_rule(package: Path) -> list[str]:
    """Folders with C of which nobody says what they may include."""
    found = {str(path.parent.relative_to(package)) for path in package.rglob("*.[ch]")}
    return sorted(found - MAY_INCLUDE.keys())


def wrong_includes(package: Path, folder: str) -> list[str]:
    """Includes of a folder that do not point down."""
    return [
        f"{path.relative_to(package)} includes {name}"
        for path in c_files(package, folder)
        for name, quoted in _includes(path)
        # A name without a folder is that of a generated header of the same folder.
        if quoted and "/" in name and name.split("/")[0] not in MAY_INCLUDE[folder]
    ]


def knowers_of_qp_types(package: Path) -> list[str]:
    """What all QPs share, and includes a type of QP."""
    return [
        f"{path.relative_to(package)} includes {name}"
        for path in c_files(package, "engine")
        for name, _ in _includes(path)
        if re.match(r"engine/\w+/", name) and path.name not in KNOW_TYPES
    ]


def system_headers(package: Path, folder: str) -> list[str]:
    """System headers that a pure folder includes."""
    return [
        f"{path.relative_to(package)} includes <{name}>"
        for path in c_files(package, folder)
        for name, quoted in _includes(path)
        if not quoted and name not in PURE_HEADERS
    ]


def system_symbols(objects: Collection[Path]) -> set[str]:
    """Symbols that objects want from elsewhere, and that a pure folder has no use for."""
    wanted = set().union(*map(undefined_symbols, objects))
    ours = set().union(*map(_defined_symbols, objects))
    return {name for name in wanted - ours if not PURE_SYMBOLS.fullmatch(name)}


def python_symbols(library: Path) -> set[str]:
    """Symbols of Python that a library wants."""
    return {name for name in undefined_symbols(library) if _PYTHON_SYMBOL.match(name)}


def broken_imports(tree: Path) -> str:
    """import-linter's words on the contracts in the tree's pyproject.toml; "" when all are kept."""
    result = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if result.returncode == 0 else result.stdout + result.stderr


def askers_for_a_lane(package: Path) -> list[str]:
    """Lines outside of the lanes that ask for one by its name, in place of its properties."""
    return [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] != "lanes"
        for line in path.read_text().splitlines()
        if _LANE_ASKED.search(line)
    ]


def heavy_modules(tree: Path) -> set[str]:
    """Those that `import datapath.cli` of the tree loads."""
    code = "import sys, datapath.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True
    )
    return HEAVY & set(result.stdout.split())


def undefined_symbols(path: Path) -> set[str]:
    """Names that the object or shared library at path wants from elsewhere."""
    return {
        name
        for name, section, bind in _symbols(path)
        if section == "SHN_UNDEF" and bind == "STB_GLOBAL"
    }


def _defined_symbols(path: Path) -> set[str]:
    return {name for name, section, _ in _symbols(path) if section != "SHN_UNDEF"}


def _symbols(path: Path) -> Iterator[tuple[str, object, str]]:
    """(name, section, binding) of each named symbol."""
    with path.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            if isinstance(section, SymbolTableSection):
                for symbol in section.iter_symbols():
                    if symbol.name:
                        yield symbol.name, symbol["st_shndx"], symbol["st_info"]["bind"]


def _includes(path: Path) -> Iterator[tuple[str, bool]]:
    """(name, whether between quotes) of each include."""
    for match in _INCLUDE.finditer(path.read_text()):
        yield match["name"], match["open"] == '"'
