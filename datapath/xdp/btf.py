# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads BTF, the type information in a BPF object (Documentation/bpf/btf.rst in Linux).

Only what describes maps is interpreted: integers, pointers, arrays,
structures, variables and data sections.  Types are numbered from 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

_MAGIC = 0xEB9F
_HEADER = struct.Struct("HBBIIIII")
_TYPE = struct.Struct("III")
_POINTER_SIZE = 8

VOID, INT, PTR, ARRAY, STRUCT, UNION, ENUM, FUNC_PROTO = 0, 1, 2, 3, 4, 5, 6, 13
_VAR, _DATASEC, _DECL_TAG, _ENUM64 = 14, 15, 17, 19
_TRANSPARENT = {8, 9, 10, 11, 18}  # typedef, volatile, const, restrict, type tag
# Bytes that follow a type: fixed ones, and for each of its vlen entries.
_FIXED = {INT: 4, ARRAY: 12, _VAR: 4, _DECL_TAG: 4}
_EACH = {STRUCT: 12, UNION: 12, ENUM: 8, _ENUM64: 12, FUNC_PROTO: 8, _DATASEC: 12}


class BtfError(ValueError):
    """The bytes are not BTF."""


@dataclass(frozen=True)
class Type:
    """One type.  reference: the size in bytes, or the number of the type it refers to.

    members: (name, type number) of a structure; (variable's type number,) of a section.
    elements: of an array; its element type is `reference`.
    """

    kind: int
    name: str
    reference: int
    elements: int = 0
    members: list[tuple[str, int]] = field(default_factory=list)


class Btf:
    """All types of one .BTF section."""

    def __init__(self, data: bytes, *, little_endian: bool = True) -> None:
        self._order = "<" if little_endian else ">"
        try:
            self._parse(data)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise BtfError(f"damaged BTF: {error}") from None

    def _parse(self, data: bytes) -> None:
        header = struct.Struct(self._order + _HEADER.format)
        magic, _, _, length, type_at, type_len, name_at, name_len = header.unpack_from(data)
        if magic != _MAGIC:
            raise BtfError(f"magic {magic:#x} is not that of BTF")
        self._names = data[length + name_at : length + name_at + name_len]
        types = data[length + type_at : length + type_at + type_len]
        self.types: list[Type] = [Type(0, "void", 0)]
        at = 0
        while at < len(types):
            at = self._parse_type(types, at)

    def _parse_type(self, data: bytes, at: int) -> int:
        name, info, reference = struct.Struct(self._order + _TYPE.format).unpack_from(data, at)
        kind, count = info >> 24 & 0x1F, info & 0xFFFF
        at += _TYPE.size
        each, after = _EACH.get(kind, 0), at + _FIXED.get(kind, 0)
        end: int = after + each * count
        if end > len(data):
            raise BtfError("damaged BTF: a type is cut off")
        elements, members = 0, []
        if kind == ARRAY:
            reference, _, elements = struct.unpack_from(self._order + "III", data, at)
        elif kind in (STRUCT, UNION):
            for place in range(after, end, each):
                member_name, member = struct.unpack_from(self._order + "II", data, place)
                members.append((self._name(member_name), member))
        elif kind == _DATASEC:
            for place in range(after, end, each):
                (variable,) = struct.unpack_from(self._order + "I", data, place)
                members.append(("", variable))
        self.types.append(Type(kind, self._name(name), reference, elements, members))
        return end

    def _name(self, offset: int) -> str:
        end = self._names.index(0, offset) if 0 in self._names[offset:] else len(self._names)
        return self._names[offset:end].decode()

    def resolve(self, number: int) -> Type:
        """The type behind typedefs and qualifiers."""
        for _ in range(32):
            found = self.types[number]
            if found.kind not in _TRANSPARENT:
                return found
            number = found.reference
        raise BtfError("damaged BTF: typedefs in a circle")

    def size(self, number: int, depth: int = 0) -> int:
        """Bytes of a value of the type."""
        found = self.resolve(number)
        if depth > 32:
            raise BtfError("damaged BTF: arrays in a circle")
        if found.kind == PTR:
            return _POINTER_SIZE
        if found.kind == ARRAY:
            return found.elements * self.size(found.reference, depth + 1)
        return found.reference if found.kind not in (FUNC_PROTO, VOID) else 0

    def section(self, name: str) -> list[Type]:
        """The variables of a data section, [] when there is none."""
        for found in self.types:
            if found.kind == _DATASEC and found.name == name:
                return [self.types[number] for _, number in found.members]
        return []
