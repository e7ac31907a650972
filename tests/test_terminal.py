# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What of a text reaches a terminal."""

from __future__ import annotations

import io
import sys
import unicodedata

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from datapath.terminal import guarded, printable, raw

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def categories(text: str) -> set[str]:
    return {unicodedata.category(c) for c in text}


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not categories(printable(text)) & OBEYED
    assert not categories(printable(text, keep="\n\t").replace("\n", "").replace("\t", "")) & OBEYED


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S"))))
def test_text_that_is_printed_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31m", r"\x9b31m"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\u202etxt", r"\u202etxt"),
        ("\udcff", r"\udcff"),
        ("\U000e0001", r"\U000e0001"),
        ("9.1\N{NO-BREAK SPACE}µs", "9.1\N{NO-BREAK SPACE}µs"),
    ],
)
def test_escapes_say_what_stood_there(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_streams_are_guarded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    below = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", below)
    with guarded():
        print("\x1b[31m µ \udcff")
        sys.stdout.writelines(["\x07", "\n"])
        assert raw(sys.stdout) is below
    assert sys.stdout is below
    below.flush()
    assert below.buffer.getvalue() == b"\\x1b[31m \\xb5 \\udcff\n\\x07\n"  # type: ignore[attr-defined]


def test_what_click_prints_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """click writes bytes first, to learn which kind of stream it has."""
    with guarded():
        typer.echo("dpctl 0.1.0")
        typer.echo(b"\xc2\xb5s", err=True)
    assert capsys.readouterr() == ("dpctl 0.1.0\n", "µs\n")
