# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The struct tcp_congestion_ops in an object file of clang (ELF with BTF), before a kernel sees it.

The kernel refuses one that is not complete with a bare number, and takes a name once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datapath.errors import LocalError

SECTION = ".struct_ops"
_LINKED = ".struct_ops.link"
_TYPE = "tcp_congestion_ops"
_NAME_ROOM = 16  # TCP_CA_NAME_MAX
_NAME = re.compile(r"[A-Za-z0-9_.]+")
_NEEDED = (("ssthresh",), ("undo_cwnd",), ("cong_avoid", "cong_control"))
"""Members of which tcp_validate_congestion_control() wants one each."""

_SYMBOLS, _RELOCATIONS = 2, 9  # SHT_SYMTAB, SHT_REL
_FUNCTION, _OF_SECTION = 2, 3  # STT_FUNC, STT_SECTION
_HINT = "datapath/cc/tcp/dp_copa.bpf.c is a complete one (docs/cc.md, The kernel's TCP)"


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    start: int
    size: int
    link: int
    info: int


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
    sections = _sections(image)
    wrong = [*_wrong_name(image, sections, kind), *_wrong_members(image, sections, kind)]
    if wrong:
        raise LocalError("\n".join(f"{source}: {variable} {what}" for what in wrong), hint=_HINT)


def renamed(image: bytes, types: Sequence[Mapping[str, Any]], number: int) -> bytes:
    """The object with `.NUMBER` at the end of the algorithm's name, cut to what there is room for.

    check() has found nothing wrong.
    """
    ((_, kind),) = _variables(types)
    place = _name_place(_sections(image), kind)
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


def _name_place(sections: Sequence[_Section], kind: Mapping[str, Any]) -> int:
    """In the file."""
    (section,) = [section for section in sections if section.name == SECTION]
    places = {name: place for place, name in _members(kind).items()}
    return section.start + places["name"]


def _wrong_name(
    image: bytes, sections: Sequence[_Section], kind: Mapping[str, Any]
) -> Iterator[str]:
    place = _name_place(sections, kind)
    name, end, _ = image[place : place + _NAME_ROOM].partition(b"\0")
    text = name.decode(errors="replace")
    if not name:
        yield "has no .name, under which TCP would know it"
    elif not end:
        yield f'has a .name of more than {_NAME_ROOM - 1} characters ("{text}...")'
    elif not _NAME.fullmatch(text):
        yield f'has the .name "{text}": the kernel takes letters, digits, _ and . alone'


def _wrong_members(
    image: bytes, sections: Sequence[_Section], kind: Mapping[str, Any]
) -> Iterator[str]:
    members = _members(kind)
    functions, given = _functions(image, sections)
    have = {members.get(place) for place in given}
    for choice in _NEEDED:
        if not have & {*choice}:
            yield f"has no {' or '.join(f'.{name}' for name in choice)}, without which TCP has none"
    used = {*given.values()}
    for name, section in functions:
        if name not in used and section not in used:
            yield f"has {name}() in no member, where it should be, or not be in the file"


def _functions(
    image: bytes, sections: Sequence[_Section]
) -> tuple[list[tuple[str, str]], dict[int, str]]:
    """(name, section) of the functions for the struct; offset in it -> name of what is there."""
    functions, given = [], {}
    (table,) = [section for section in sections if section.kind == _SYMBOLS]
    names = sections[table.link]
    symbols = []
    for place in range(table.start, table.start + table.size, 24):
        at, info, _, index = struct.unpack_from("<IBBH", image, place)
        section = sections[index].name if index < len(sections) else ""
        symbols.append(section if info & 15 == _OF_SECTION else _text(image, names.start + at))
        if info & 15 == _FUNCTION and section.split("/")[0] in ("struct_ops", "struct_ops.s"):
            functions.append((symbols[-1], section))
    for relocations in sections:
        if relocations.kind == _RELOCATIONS and sections[relocations.info].name == SECTION:
            for place in range(relocations.start, relocations.start + relocations.size, 16):
                offset, info = struct.unpack_from("<QQ", image, place)
                given[offset] = symbols[info >> 32]
    return functions, given


def _sections(image: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    rows = [struct.unpack_from("<IIQQQQII", image, start + i * size) for i in range(count)]
    return [
        _Section(_text(image, rows[names][4] + at), kind, place, length, link, info)
        for at, kind, _, _, place, length, link, info in rows
    ]


def _text(image: bytes, place: int) -> str:
    return image[place : image.index(b"\0", place)].decode(errors="replace")
