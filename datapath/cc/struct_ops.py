# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The struct tcp_congestion_ops in an object file of clang (ELF with BTF), before a kernel sees it.

The kernel refuses one that is not complete with a bare number, and takes a name once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from datapath.errors import LocalError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

SECTION = ".struct_ops"
_LINKED = ".struct_ops.link"
_TYPE = "tcp_congestion_ops"
_NAME_ROOM = 16  # TCP_CA_NAME_MAX
_NAME = re.compile(r"[A-Za-z0-9_.]+")
_NEEDED = (("ssthresh",), ("undo_cwnd",), ("cong_avoid", "cong_control"))
"""Members of which tcp_validate_congestion_control() wants one each."""

_HINT = "datapath/cc/tcp/dp_copa.bpf.c is a complete one (docs/cc-kernels.md, The kernel's TCP)"


def plain(image: bytes) -> bytes:
    """The object with SEC(".struct_ops.link") as SEC(".struct_ops").

    libbpf before 1.2 knows only the latter.  dp-tcp-registrar makes a link of either.  A name ends
    with its zero byte, in ELF as in BTF.
    """
    return image.replace(_LINKED.encode() + b"\0", SECTION.encode() + b"\0link\0")


def check(image: bytes, types: Sequence[Mapping[str, Any]], source: str) -> None:
    """LocalError with all that keeps every kernel from taking it.

    types: the object's BTF, as `bpftool -j` tells it.  source: the name of its file.
    """
    variables = _variables(types)
    if len(variables) != 1:
        names = ", ".join(name for name, _ in variables)
        found = f"several variables ({names})" if variables else "no variable"
        raise LocalError(
            f'{source} has {found} in SEC("{SECTION}"), where one struct {_TYPE} should be',
            hint=_HINT,
        )
    ((variable, kind),) = variables
    if kind.get("name", "").split("___")[0] != _TYPE:
        raise LocalError(
            f"{source}: {variable} is a {kind['kind'].lower()} {kind.get('name', '')}, where a "
            f"struct {_TYPE} should be",
            hint=_HINT,
        )
    elf = _elf(image)
    wrong = [*_wrong_name(image, elf, kind), *_wrong_members(elf, kind)]
    if wrong:
        raise LocalError("\n".join(f"{source}: {variable} {what}" for what in wrong), hint=_HINT)


def renamed(image: bytes, types: Sequence[Mapping[str, Any]], number: int) -> bytes:
    """The object with `.NUMBER` at the end of the algorithm's name, cut to what there is room for.

    check() has found nothing wrong.
    """
    ((_, kind),) = _variables(types)
    place = _name_place(_elf(image), kind)
    end = f".{number}".encode()
    name = image[place : place + _NAME_ROOM].split(b"\0")[0]
    name = (name[: _NAME_ROOM - 1 - len(end)] + end).ljust(_NAME_ROOM, b"\0")
    return image[:place] + name + image[place + _NAME_ROOM :]


def _variables(types: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """(name, type) of those in the section."""
    by_id = {entry["id"]: entry for entry in types}
    found = []
    for entry in types:
        if entry["kind"] == "DATASEC" and entry["name"] in (SECTION, _LINKED):
            for place in entry["vars"]:
                variable = by_id[place["type_id"]]
                kind = by_id[variable["type_id"]]
                while kind["kind"] in ("CONST", "VOLATILE", "TYPEDEF"):
                    kind = by_id[kind["type_id"]]
                found.append((variable["name"], kind))
    return found


def _members(kind: Mapping[str, Any]) -> dict[int, str]:
    """By their place in the struct, in bytes."""
    return {member["bits_offset"] // 8: member["name"] for member in kind["members"]}


def _name_place(elf: ELFFile, kind: Mapping[str, Any]) -> int:
    """In the file."""
    places = {name: place for place, name in _members(kind).items()}
    section: Any = elf.get_section_by_name(SECTION)
    return int(section["sh_offset"]) + places["name"]


def _wrong_name(image: bytes, elf: ELFFile, kind: Mapping[str, Any]) -> Iterator[str]:
    place = _name_place(elf, kind)
    name, end, _ = image[place : place + _NAME_ROOM].partition(b"\0")
    text = name.decode(errors="replace")
    if not name:
        yield "has no .name, under which TCP would know it"
    elif not end:
        yield f'has a .name of more than {_NAME_ROOM - 1} characters ("{text}...")'
    elif not _NAME.fullmatch(text):
        yield f'has the .name "{text}": the kernel takes letters, digits, _ and . alone'


def _wrong_members(elf: ELFFile, kind: Mapping[str, Any]) -> Iterator[str]:
    members = _members(kind)
    functions, given = _functions(elf)
    have = {members.get(place) for place in given}
    for choice in _NEEDED:
        if not have & {*choice}:
            yield f"has no {' or '.join(f'.{name}' for name in choice)}, without which TCP has none"
    used = {*given.values()}
    for name, section in functions:
        if name not in used and section not in used:
            yield f"has {name}() in no member, where it should be, or not be in the file"


def _functions(elf: ELFFile) -> tuple[list[tuple[str, str]], dict[int, str]]:
    """(name, section) of the functions for the struct; offset in it -> name of what is there."""
    functions, symbols = [], []
    table: Any = elf.get_section_by_name(".symtab")  # clang makes it always
    for symbol in table.iter_symbols():
        index, kind = symbol["st_shndx"], symbol["st_info"]["type"]
        section = elf.get_section(index).name if isinstance(index, int) else ""
        symbols.append(section if kind == "STT_SECTION" else symbol.name)
        if kind == "STT_FUNC" and section.split("/")[0] in ("struct_ops", "struct_ops.s"):
            functions.append((symbol.name, section))
    given = {}
    relocations: Any
    for relocations in elf.iter_sections("SHT_REL"):
        if elf.get_section(relocations["sh_info"]).name == SECTION:
            for one in relocations.iter_relocations():
                given[one["r_offset"]] = symbols[one["r_info_sym"]]
    return functions, given


def _elf(image: bytes) -> ELFFile:
    from elftools.elf.elffile import ELFFile

    return ELFFile(BytesIO(image))
