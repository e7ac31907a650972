# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tests ask of a page: elements, their attributes and their text."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr", "base", "source", "embed"}


class Element:
    """A node of the page with the text of everything in it."""

    def __init__(self, tag: str, attributes: dict[str, str], path: tuple[Element, ...]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.path = path
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())

    def inside(self, ident: str) -> bool:
        return any(outer.attributes.get("id") == ident for outer in self.path)


class Page(HTMLParser):
    """A parsed page; `problems` lists tags that were not closed in order."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.markup = markup
        self.elements: list[Element] = []
        self.problems: list[str] = []
        self._open: list[Element] = []
        self.feed(markup)
        self.close()
        self.problems += [f"<{element.tag}> stays open" for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {k: v or "" for k, v in attrs}, tuple(self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {k: v or "" for k, v in attrs}, tuple(self._open)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1].tag != tag:
            self.problems.append(f"</{tag}> closes <{self._open[-1].tag if self._open else ''}>")
            return
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.pieces.append(data)

    def all(self, tag: str, within: str = "") -> list[Element]:
        """Elements with this tag, in the element with that id if one is named."""
        return [e for e in self.elements if e.tag == tag and (not within or e.inside(within))]

    def by_id(self, ident: str) -> Element:
        return next(e for e in self.elements if e.attributes.get("id") == ident)

    def text(self, ident: str) -> str:
        """Text of the element with an id, "" when there is none."""
        return next((e.text for e in self.elements if e.attributes.get("id") == ident), "")

    def rows(self, within: str, *, folded: bool = True) -> list[list[str]]:
        """Body rows of the tables in a section (and in its <details>), as text of their cells."""
        rows = [e for e in self.all("tr", within) if any(p.tag == "tbody" for p in e.path)]
        if not folded:
            rows = [e for e in rows if not any(p.tag == "details" for p in e.path)]
        return [[e.text for e in self.elements if e.tag == "td" and r in e.path] for r in rows]
