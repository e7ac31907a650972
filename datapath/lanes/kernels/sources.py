# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where apt gets packages from: reading the machine's sources, deriving the backports'.

apt has two forms of the same thing, sources.list(5): stanzas of fields
("deb822", in *.sources) and one-line entries (in *.list).  Both are read into
stanzas, so that what belongs to a mirror (its keys and options) goes along
when another suite of it is asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

_ENTRY = re.compile(r"(?P<type>deb(?:-src)?)\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<rest>.+)")
_OPTIONS = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
_OWN_NAMES = ("stable", "oldstable", "oldoldstable", "testing")
_OFF = ("no", "false", "without", "off", "disable")


@dataclass(frozen=True)
class Stanza:
    """One entry of apt's sources.  `options`: further fields and their raw values."""

    types: tuple[str, ...]
    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """The stanza in deb822 form."""
        fields = [
            ("Types", " ".join(self.types)),
            ("URIs", " ".join(self.uris)),
            ("Suites", " ".join(self.suites)),
            ("Components", " ".join(self.components)),
            *self.options,
        ]
        # A value of several lines, such as a key, begins on the next line.
        lines = (f"{name}: {value}".replace(": \n", ":\n", 1) for name, value in fields if value)
        return "\n".join(lines) + "\n"


def read(files: list[Path]) -> list[Stanza]:
    """The enabled entries of these files, in their order; other files are passed over."""
    stanzas: list[Stanza] = []
    for path in files:
        if path.suffix == ".sources":
            stanzas += _parse_stanzas(path.read_text())
        elif path.suffix == ".list":
            stanzas += _parse_entries(path.read_text())
    return stanzas


def derive(stanzas: list[Stanza], codename: str, suites: tuple[str, ...]) -> Stanza | None:
    """Other suites from the place where this machine's own Debian comes from.

    codename: the machine's, such as bookworm.  None when no entry has Debian's
    main archive of it.
    """
    names = {codename, *_OWN_NAMES}
    for stanza in stanzas:
        if "deb" in stanza.types and "main" in stanza.components and names & {*stanza.suites}:
            return replace(stanza, types=("deb",), suites=suites, components=("main",))
    return None


def _parse_stanzas(text: str) -> list[Stanza]:
    stanzas = []
    for block in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line[:1].isspace() and name:
                fields[name] += "\n" + line.rstrip()
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        enabled = fields.pop("enabled", "yes").lower() not in _OFF
        words = {key: tuple(fields.pop(key, "").split()) for key in _WORDS}
        if enabled and words["types"] and words["uris"]:
            options = tuple((key.title(), value) for key, value in fields.items())
            stanzas.append(Stanza(**words, options=options))
    return stanzas


_WORDS = ("types", "uris", "suites", "components")


def _parse_entries(text: str) -> list[Stanza]:
    stanzas = []
    for line in text.splitlines():
        entry = _ENTRY.fullmatch(line.partition("#")[0].strip())
        if not entry:
            continue
        uri, suite, *components = entry["rest"].split()
        stanzas.append(
            Stanza(
                types=(entry["type"],),
                uris=(uri,),
                suites=(suite,),
                components=tuple(components),
                options=tuple(map(_option, (entry["options"] or "").split())),
            )
        )
    return stanzas


def _option(word: str) -> tuple[str, str]:
    """An option of the one-line form as a field: signed-by=/a,/b is Signed-By: /a /b."""
    key, _, value = word.partition("=")
    change = {"+": "-Add", "-": "-Remove"}.get(key[-1:], "")
    key = key.rstrip("+-")
    return _OPTIONS.get(key, key.title()) + change, value.replace(",", " ")
