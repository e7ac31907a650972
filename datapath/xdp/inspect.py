# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The content of a compiled BPF object, without loading it: programs, maps, licence, BTF."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath.errors import LocalError
from datapath.xdp.btf import ARRAY, PTR, STRUCT, Btf, BtfError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_INSTRUCTION_BYTES = 8
_EM_BPF = "EM_BPF"

# enum bpf_map_type of <linux/bpf.h>, by number.
_MAP_TYPE_NAMES = """
    unspec hash array prog_array perf_event_array percpu_hash percpu_array stack_trace
    cgroup_array lru_hash lru_percpu_hash lpm_trie array_of_maps hash_of_maps devmap sockmap
    cpumap xskmap sockhash cgroup_storage reuseport_sockarray percpu_cgroup_storage queue stack
    sk_storage devmap_hash struct_ops ringbuf inode_storage task_storage bloom_filter
    user_ringbuf cgrp_storage arena
"""
_MAP_TYPES = _MAP_TYPE_NAMES.split()

# Data sections that libbpf turns into array maps of one entry.
_DATA_MAPS = (".rodata", ".data", ".bss", ".kconfig")


@dataclass(frozen=True)
class Program:
    """A function in an executable section.

    section: tells libbpf type and attach point; ".text" holds functions that
    programs call.  fragments: declared to take packets in several buffers.
    """

    name: str
    section: str
    kind: str
    instructions: int
    bytes: int
    fragments: bool


@dataclass(frozen=True)
class Map:
    """A map; key and value sizes in bytes, 0 where the type has none or sets them itself."""

    name: str
    type: str
    key_bytes: int
    value_bytes: int
    max_entries: int


@dataclass(frozen=True)
class Inspection:
    """Everything `dpctl xdp inspect` shows.

    licence: "" when the object has none (the kernel takes it as proprietary).
    btf_bytes: size of .BTF, 0 when there is none (then maps by BTF cannot be loaded).
    """

    file: str
    file_bytes: int
    byte_order: str
    licence: str
    gpl_compatible: bool
    btf_bytes: int
    line_info: bool
    programs: list[Program]
    maps: list[Map]


# As in license_is_gpl_compatible() of the kernel.
_GPL_COMPATIBLE = (
    "GPL",
    "GPL v2",
    "GPL and additional rights",
    "Dual BSD/GPL",
    "Dual MIT/GPL",
    "Dual MPL/GPL",
)


def inspect(path: Path) -> Inspection:
    """Read an object; LocalError when it is not a BPF object or is damaged."""
    from elftools.common.exceptions import ELFError, ELFParseError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            if elf["e_machine"] != _EM_BPF:
                machine = elf.get_machine_arch()
                raise _not_bpf(path, f"it is an ELF file for {machine.strip('<>')}")
            return _inspect(path, elf)
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}", hint="name a compiled BPF object") from None
    except (ELFError, ELFParseError, ConstructError, BtfError, UnicodeDecodeError) as error:
        raise _not_bpf(path, str(error)) from None
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        OverflowError,
        struct.error,
    ) as error:
        # pyelftools lets these through where headers point outside the file
        raise _not_bpf(path, f"damaged ELF file ({error})") from None


def _not_bpf(path: Path, reason: str) -> LocalError:
    return LocalError(
        f"{path} is not a readable BPF object: {reason}",
        hint="compile with clang -target bpf -O2 -g -c prog.c -o prog.o",
    )


def _inspect(path: Path, elf: ELFFile) -> Inspection:
    btf_data = _section_data(elf, ".BTF")
    btf = Btf(btf_data, little_endian=elf.little_endian) if btf_data else None
    licence = _section_data(elf, "license").split(b"\0")[0].decode()
    maps = _btf_maps(btf) if btf else []
    maps += _legacy_maps(elf) + _data_maps(elf)
    return Inspection(
        file=str(path),
        file_bytes=path.stat().st_size,
        byte_order="little" if elf.little_endian else "big",
        licence=licence,
        gpl_compatible=licence in _GPL_COMPATIBLE,
        btf_bytes=len(btf_data),
        line_info=bool(_section_data(elf, ".BTF.ext")),
        programs=_programs(elf),
        maps=maps,
    )


def _section_data(elf: ELFFile, name: str) -> bytes:
    section = elf.get_section_by_name(name)
    return bytes(section.data()) if section is not None else b""


def _symbols(elf: ELFFile) -> Iterator[Any]:
    from elftools.elf.sections import SymbolTableSection

    table = elf.get_section_by_name(".symtab")
    if isinstance(table, SymbolTableSection):
        yield from table.iter_symbols()


def _programs(elf: ELFFile) -> list[Program]:
    """Functions in executable sections, in the order of the file."""
    sections = list(elf.iter_sections())
    found = []
    for symbol in _symbols(elf):
        index = symbol["st_shndx"]
        if symbol["st_info"]["type"] != "STT_FUNC" or not isinstance(index, int):
            continue
        section = sections[index]
        if not section["sh_flags"] & 4:  # SHF_EXECINSTR
            continue
        size = symbol["st_size"] or section["sh_size"] - symbol["st_value"]
        program = Program(
            name=symbol.name,
            section=section.name,
            kind=_kind(section.name),
            instructions=size // _INSTRUCTION_BYTES,
            bytes=size,
            fragments=section.name.split("/")[0].endswith(".frags"),
        )
        found.append((index, symbol["st_value"], program))
    return [program for _, _, program in sorted(found, key=lambda item: item[:2])]


def _kind(section: str) -> str:
    """Program type by libbpf's convention for section names."""
    start = section.split("/")[0].lstrip("?")
    return "subprogram" if start == ".text" else start.removesuffix(".frags")


def _btf_maps(btf: Btf) -> list[Map]:
    """Maps of the `.maps` section: each a structure whose member types carry the numbers."""
    maps = []
    for variable in btf.section(".maps"):
        definition = btf.resolve(variable.reference)
        if definition.kind != STRUCT:
            raise BtfError(f"map {variable.name} is not a structure")
        members = dict(definition.members)
        maps.append(
            Map(
                name=variable.name,
                type=_map_type(_encoded(btf, members, "type")),
                key_bytes=_size(btf, members, "key"),
                value_bytes=_size(btf, members, "value"),
                max_entries=_encoded(btf, members, "max_entries"),
            )
        )
    return maps


def _encoded(btf: Btf, members: Mapping[str, int], name: str) -> int:
    """__uint(name, N) is a pointer to an array of N integers."""
    if name not in members:
        return 0
    pointer = btf.resolve(members[name])
    target = btf.resolve(pointer.reference) if pointer.kind == PTR else pointer
    return target.elements if target.kind == ARRAY else 0


def _size(btf: Btf, members: Mapping[str, int], name: str) -> int:
    """__type(key, T) is a pointer to T; __uint(key_size, N) says the same."""
    if name in members:
        pointer = btf.resolve(members[name])
        return btf.size(pointer.reference) if pointer.kind == PTR else btf.size(members[name])
    return _encoded(btf, members, f"{name}_size")


def _map_type(number: int) -> str:
    return _MAP_TYPES[number] if number < len(_MAP_TYPES) else f"type {number}"


def _legacy_maps(elf: ELFFile) -> list[Map]:
    """Maps of the older `maps` section: struct bpf_map_def, five 32-bit numbers."""
    section = elf.get_section_by_name("maps")
    if section is None:
        return []
    number = list(elf.iter_sections()).index(section)
    numbers = struct.Struct("<4I" if elf.little_endian else ">4I")
    maps = []
    for symbol in _symbols(elf):
        if symbol["st_shndx"] != number or not symbol.name:
            continue
        kind, key, value, entries = numbers.unpack_from(section.data(), symbol["st_value"])
        maps.append(Map(symbol.name, _map_type(kind), key, value, entries))
    return maps


def _data_maps(elf: ELFFile) -> list[Map]:
    """Global variables: one array map with a single value for each section."""
    return [
        Map(section.name, "array", 4, section["sh_size"], 1)
        for section in elf.iter_sections()
        if section.name.startswith(_DATA_MAPS) and section["sh_flags"] & 2 and section["sh_size"]
    ]


def as_text(found: Inspection) -> str:
    """For people: lines and two tables."""
    gpl = "GPL-compatible" if found.gpl_compatible else "not GPL-compatible: few helpers allowed"
    btf = f"{found.btf_bytes} bytes" if found.btf_bytes else "none"
    lines = [
        f"file     {found.file}, {found.file_bytes} bytes, {found.byte_order}-endian",
        f"licence  {found.licence or 'none'} ({gpl})",
        f"BTF      {btf}, {'with' if found.line_info else 'without'} line information",
        "",
        *_table(
            ("PROGRAM", "SECTION", "TYPE", "INSTRUCTIONS", "FRAGMENTS"),
            [(p.name, p.section, p.kind, p.instructions, _fragments(p)) for p in found.programs],
        ),
        "",
        *_table(
            ("MAP", "TYPE", "KEY BYTES", "VALUE BYTES", "MAX ENTRIES"),
            [(m.name, m.type, m.key_bytes, m.value_bytes, m.max_entries) for m in found.maps],
        ),
    ]
    return "\n".join(lines) + "\n"


def _fragments(program: Program) -> str:
    if program.kind != "xdp":
        return "-"
    return "yes" if program.fragments else "no"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Columns padded to their widest cell; a line that says so when there are no rows."""
    if not rows:
        return [f"no {header[0].lower()}s"]
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
