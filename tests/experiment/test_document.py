# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""YAML with places: what was written stays known, and syntax errors say where they are."""

from __future__ import annotations

import pytest

from datapath.experiment.document import InvalidFile, Place, parse, show_path

TEXT = """\
base: &base {loss: 1%, qpn: 0x11}
other:
  <<: *base
  list: [1, 2.50, {on: yes, off: true}]
  date: 2020-01-01
"""


def test_data_places_and_text() -> None:
    document = parse(TEXT, "f.yaml")
    assert document.data["base"] == {"loss": "1%", "qpn": 17}
    assert document.data["other"]["loss"] == "1%"
    assert document.data["other"]["list"] == [1, 2.5, {"on": "yes", "off": True}]
    assert document.data["other"]["date"] == "2020-01-01"
    assert document.written(("base", "qpn")) == "0x11"
    assert document.written(("other", "list")) == "[1, 2.50, {on: yes, off: true}]"
    assert document.place(("other", "list", 2, "off")) == Place(4, 34)
    assert document.place(("other", "nothing")) == Place(2, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\nb: {c: 1, c: 2}", "f:2:1: a: given twice; first in line 1"),
        ("a: 1\na: 2\nb: {c: 1, c: 2}", "f:3:11: b.c: given twice; first in line 3"),
        ("a: [1, 2", "f:1:9: YAML syntax: while parsing a flow sequence expected ',' or ']'"),
        (
            "a:\n\t- b",
            "f:2:1: YAML syntax: while scanning for the next token found character '\\t'",
        ),
        ("a:\n\t- b", "; indent with spaces"),
        ("a: b: c", "f:1:5: YAML syntax: mapping values are not allowed here; quote the text"),
        ("a: 'x", "a quote or bracket is not closed"),
        ("a: *x", "found undefined alias 'x'"),
        ("a: &x [*x]", "f:1:4: a[0]: an alias (*) points back into what it is part of"),
        ("? [1]\n: 2", "f:1:3: a key must be a word"),
        ("<<: {[1]: 2}", "f:1:6: a key must be a word"),
        ("a: &a {? {b: c} : 2}\nd: {<<: *a}", "f:1:10: d: a key must be a word"),
        ("a: !!bool maybe", "f:1:4: a: cannot be read: 'maybe' is no bool"),
        ("a: !!int ''", "f:1:4: a: cannot be read: '' is no int"),
        ("a: !!float ''", "f:1:4: a: cannot be read: '' is no float"),
        ('a: "\\UFFFFFFFF"', "f:1:1: not YAML: Python int too large"),
        ("a: &a {<<: *a, b: 1}", "f:1:4: a: << points back into what it is part of"),
        ("a: &a {<<: [{<<: *a}]}", "f:1:12: a: << points back into what it is part of"),
        ("a: !!python/object:os.system x", "f:1:4: a: cannot be read: could not determine"),
        ("a: [!!binary aGk=]", "f:1:5: a[0]: is binary; write text or a number"),
        ("<<: 3", "<< needs a mapping"),
        ("- a", "f:1:1: not an experiment: the file is not a mapping"),
        ("", "f:1:1: not an experiment"),
        ("\x00", "f:1:1: not YAML"),
        ('a: [x, "\\ud800"]', "f:1:8: a[1]: text holds half a character"),
        ('a: {"\\udfff": x}', "f:1:5: a: text holds half a character"),
        ('<<: {"\\udfff": x}', "f:1:6: text holds half a character"),
        ("a: 1\n---\nb: 2", "found another document"),
    ],
)
def test_mistakes_are_located(text: str, said: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        parse(text, "f")
    assert said in str(caught.value)


def test_paths_are_shown_as_they_are_written() -> None:
    path = ("sweep", "matrix", "path.loss", 1)
    assert show_path(path) == 'sweep.matrix["path.loss"][1]'


def test_a_part_may_merge_what_it_is_part_of_where_its_own_key_ends_it() -> None:
    document = parse("a: &a {x: 1, b: {<<: *a, b: 2}}", "f")
    assert document.data == {"a": {"x": 1, "b": {"x": 1, "b": 2}}}
