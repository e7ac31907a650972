# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Declarations and parameters: what is accepted, and what an error says."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datapath.cc import compile_algorithm, load, records, registry
from datapath.cc.algorithm import registered
from datapath.cc.spec import Cc
from datapath.errors import LocalError

from .conftest import WriteAlgorithm


def test_registry_has_the_algorithms_of_the_toolkit() -> None:
    assert {"fixed", "dctcp", "swift"} <= set(registry())
    for made in registry().values():
        assert made.source
        assert made.doc
        assert all(item.doc for item in made.params)


def test_a_class_is_read(write: WriteAlgorithm) -> None:
    made = load(
        write(
            """
            @algorithm("mine", source="nowhere")
            class Mine:
                '''One line.'''

                gain: float = param(2, unit="1", doc="how much", min=0, max=4)
                bursts: "int" = param(3)
                eager: bool = param(True)
                plain = param(1)
                count: int = state(7)
                last = state()

                def on_ack(flow, ack):
                    flow.last = ack.now_ns
            """
        )
    )
    assert (made.name, made.class_name, made.source) == ("mine", "Mine", "nowhere")
    assert made.doc == "One line."
    assert [item.name for item in made.params] == ["gain", "bursts", "eager", "plain"]
    assert [item.kind for item in made.params] == ["float", "int", "bool", "float"]
    assert [(item.name, item.kind) for item in made.state] == [("count", "int"), ("last", "float")]
    assert made.line == 7
    assert made.params[0].line == 10
    assert "mine" not in registry()  # a file of the user's own is not registered


def test_state_may_be_an_array(write: WriteAlgorithm) -> None:
    made = load(
        write(
            """
            @algorithm("mine")
            class Mine:
                one = state()
                rates: list[float] = state(2, length=3)
                counts: "list[int]" = state(-1, length=2)

                def on_ack(flow, ack):
                    flow.rates[1] = ack.rtt_ns
            """
        )
    )
    head = len(records.FLOW_MEMBERS)
    assert made.flow_bytes == 8 * (head + 1 + 3 + 2) == len(made.image({}))
    record = np.frombuffer(made.image({}), made.flow_dtype())[0]
    assert record["rates"].tolist() == [2, 2, 2]
    assert record["counts"].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("body", "line", "message", "hint"),
    [
        ("x: float = param(1)", 7, "has no on_ack", "needs one"),
        ("x: float = param(1)\ndef on_ak(flow, ack): pass", 9, "on_ak", "did you mean on_ack"),
        ("def helper(x): pass", 8, "helper is not one of", "outside the class"),
        ("def on_ack(self, flow, ack): pass", 8, "must take (flow, ack)", "no self"),
        ("def on_ack(flow, ack, more=1): pass", 8, "must take (flow, ack)", ""),
        ("def on_ack(flow, *ack): pass", 8, "must take (flow, ack)", ""),
        ("BETA = 0.5\ndef on_ack(flow, ack): pass", 8, "BETA", "top of the file"),
        ("x: float\ndef on_ack(flow, ack): pass", 8, "x has no value", "param"),
        ("x: str = param(1)\ndef on_ack(flow, ack): pass", 8, "annotated str", "float, int or"),
        ("x: float = param('1')\ndef on_ack(flow, ack): pass", 8, "must be a number", ""),
        ("x: int = param(1.5)\ndef on_ack(flow, ack): pass", 8, "whole number", ""),
        ("x = param(1, max=0)\ndef on_ack(flow, ack): pass", 8, "outside ..0", ""),
        ("mss_bytes = state(1)\ndef on_ack(flow, ack): pass", 8, "has mss_bytes already", ""),
        ("x: float = state(length=2)\ndef on_ack(flow, ack): pass", 8, "annotated float", "list["),
        ("x = state(length=-1)\ndef on_ack(flow, ack): pass", 8, "length of x is -1", "whole"),
        ("x: list[float] = state(length=True)\ndef on_ack(flow, ack): pass", 8, "is True", "whole"),
        ("x: list[float] = state(0, length=0)\ndef on_ack(flow, ack): pass", 8, "x is 0", "whole"),
        ("_x = state(1)\ndef on_ack(flow, ack): pass", 8, "underscore", "another name"),
    ],
)
def test_wrong_class(write: WriteAlgorithm, body: str, line: int, message: str, hint: str) -> None:
    members = "\n".join(f"    {item}" for item in body.splitlines())
    path = write(f'\n@algorithm("mine")\nclass Mine:\n{members}\n')
    with pytest.raises(LocalError) as caught:
        load(path)
    assert f"mine.py:{line}: " in str(caught.value)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_too_much_state(write: WriteAlgorithm) -> None:
    members = "\n".join(f"    s{number} = state()" for number in range(119))
    path = write(f'@algorithm("mine")\nclass Mine:\n{members}\n    def on_ack(f, a): pass\n')
    with pytest.raises(LocalError) as caught:
        load(path)
    said = "needs 1080 bytes per flow, 56 more than the limit of 1024: s112 is the first without"
    assert said in str(caught.value)
    line = Path(path).read_text().splitlines().index("    s112 = state()") + 1
    assert f"mine.py:{line}: " in str(caught.value)
    assert "make arrays shorter" in caught.value.hint


@pytest.mark.parametrize("name", ["", "Upper", "two words", "x" * 32, "9lives", 'a"b'])
def test_wrong_name(write: WriteAlgorithm, name: str) -> None:
    with pytest.raises(LocalError, match="is not a name"):
        load(write(f"@algorithm({name!r})\nclass Mine:\n    def on_ack(flow, ack): pass\n"))


def test_other_base_class(write: WriteAlgorithm) -> None:
    with pytest.raises(LocalError, match="may inherit from"):
        load(write('@algorithm("mine")\nclass Mine(dict):\n    def on_ack(flow, ack): pass\n'))


def test_an_algorithm_inherits_from_another(write: WriteAlgorithm) -> None:
    """Parameters, state and hooks; what stands in both classes is that of the new one."""
    path = write(
        "from datapath.cc.algorithms.newreno import NewReno\n\n"
        '@algorithm("mine")\nclass Mine(NewReno):\n    more: float = param(3, max=9)\n'
        "    def on_timeout(flow, now_ns): flow.cwnd_bytes = flow.more * flow.mss_bytes\n"
    )
    mine, newreno = load(path), load("newreno")
    assert [one.name for one in mine.params] == [*(one.name for one in newreno.params), "more"]
    assert [one.name for one in mine.state] == [one.name for one in newreno.state]
    assert mine.hooks["on_ack"] is newreno.hooks["on_ack"]
    assert mine.hooks["on_timeout"].__code__.co_filename == str(path)
    assert compile_algorithm(path).algorithm.name == "mine"


@pytest.mark.parametrize(
    ("params", "message", "hint"),
    [
        ({"betta": 0.5}, "swift has no parameter 'betta'", "did you mean beta?"),
        ({"zzzz": 1}, "no parameter 'zzzz'", "there are: "),
        ({"beta": "0.5"}, "parameter beta of swift must be a number", ""),
        ({"beta": True}, "must be a number", ""),
        ({"beta": float("nan")}, "finite", ""),
        ({"beta": float("inf")}, "finite", ""),
        ({"beta": 10**400}, "finite", ""),
        ({"beta": None}, "must be a number", ""),
        ({"beta": 1.5}, "beta of swift is 1.5, outside 0..1", ""),
        ({"base_target_ns": 0}, "outside 1.. (ns)", ""),
        ({"retx_reset_threshold": 2.5}, "whole number", ""),
        ({"retx_reset_threshold": 10**30}, "whole number of 64 bits", ""),
    ],
)
def test_wrong_parameter(params: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(LocalError) as caught:
        load("swift").resolve(params)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_parameters_take_their_declared_type(write: WriteAlgorithm) -> None:
    made = load("swift")
    values = made.resolve({"beta": 1, "retx_reset_threshold": 3.0})
    assert isinstance(values["beta"], float)
    assert isinstance(values["retx_reset_threshold"], int)
    assert values["ai"] == 1.0
    flag = load(
        write('@algorithm("m")\nclass M:\n    b: bool = param(False)\n    def on_ack(f, a): pass\n')
    )
    assert flag.resolve({"b": True}) == {"b": 1}
    with pytest.raises(LocalError, match="must be true or false, not 1"):
        flag.resolve({"b": 1})


TWO = """
@algorithm("one")
class One:
    def on_ack(flow, ack): pass

@algorithm("two")
class Two:
    def on_ack(flow, ack): pass
"""


def test_choosing_a_class(write: WriteAlgorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(TWO)
    assert load(f"{path}:Two").name == "two"
    with pytest.raises(LocalError, match="several algorithms: One, Two") as caught:
        load(path)
    assert caught.value.hint.endswith(":One")
    with pytest.raises(LocalError, match="no algorithm class Tow") as caught:
        load(f"{path}:Tow")
    assert caught.value.hint == "did you mean Two?"
    monkeypatch.chdir(Path(path).parent)
    assert load("./mine.py:One").name == "one"
    assert load("mine.py:One").name == "one"


def test_files_that_cannot_be_loaded(write: WriteAlgorithm, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file"):
        load(str(tmp_path / "none.py"))
    with pytest.raises(LocalError, match=r"(?m)holds no algorithm$"):
        load(write("x = 1\n"))
    with pytest.raises(LocalError, match=r"mine.py:6: not Python: "):
        load(write("x = 1\ny = (\n"))
    with pytest.raises(LocalError, match=r"mine.py:5: ModuleNotFoundError: No module named 'nil'"):
        load(write("import nil\n"))
    with pytest.raises(LocalError, match=r"mine.py:6: ZeroDivisionError"):
        load(write("def f():\n    1 / 0\nf()\n"))
    with pytest.raises(LocalError, match=r"mine.py:5: SystemExit"):
        load(write("raise SystemExit(3)\n"))
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LocalError, match="is not Python text"):
        load(str(tmp_path / "binary.py"))


def test_an_imported_module_registers_its_algorithms(
    write: WriteAlgorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(write(TWO, "imported_cc.py")).parent
    write(TWO, "other_cc.py")
    monkeypatch.syspath_prepend(str(folder))
    try:
        importlib.import_module("imported_cc")
        assert {"one", "two", "swift"} <= set(registry())
        assert load("one").class_name == "One"
        with pytest.raises(LocalError, match=r"name 'one' is taken by .*imported_cc.py"):
            importlib.import_module("other_cc")
    finally:
        for name in ("one", "two"):
            registered.pop(name, None)


def test_neighbours_of_two_folders_may_have_the_same_names(tmp_path: Path) -> None:
    """They are of no use by name, since they are forgotten."""
    base = (
        "from datapath.cc import algorithm, param\n"
        '@algorithm("base")\nclass Base:\n'
        "    gain = param({gain})\n    def on_ack(flow, ack): pass\n"
    )
    mine = (
        "from base_of_mine import Base\nfrom datapath.cc import algorithm\n"
        '@algorithm("mine")\nclass Mine(Base):\n    pass\n'
    )
    for folder, gain in (("a", 1.0), ("b", 2.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "base_of_mine.py").write_text(base.format(gain=gain))
        (tmp_path / folder / "mine.py").write_text(mine)
        assert load(str(tmp_path / folder / "mine.py")).params[0].default == gain
    assert "base" not in registry()


@pytest.mark.parametrize(
    "name", ["~/a.py.d/mine.py:Mine", "./a.py.d/mine.py", "a.py.d/mine.py:", "a.py.d/mine.py:Mine"]
)
def test_the_file_of_an_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As load() finds it: in a folder whose name has .py in it, and in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file, colon, class_name = name.partition(":")
    assert Cc(algo=name).file == file
    assert Cc(algo=name).located(tmp_path) == f"{tmp_path}/a.py.d/mine.py{colon}{class_name}"


def test_unknown_name() -> None:
    with pytest.raises(LocalError, match="no congestion-control algorithm is called") as caught:
        load("swfit")
    assert "did you mean swift?" in caught.value.hint


def test_neighbours_of_one_file_are_not_those_of_the_next(tmp_path: Path) -> None:
    text = (
        "from datapath.cc import algorithm, param\n"
        "from neighbour_const import GAIN\n"
        '@algorithm("mine")\nclass Mine:\n'
        "    gain = param(GAIN)\n    def on_ack(flow, ack): pass\n"
    )
    for folder, gain in (("a", 1.0), ("b", 2.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "neighbour_const.py").write_text(f"GAIN = {gain}\n")
        (tmp_path / folder / "mine.py").write_text(text)
        assert load(str(tmp_path / folder / "mine.py")).params[0].default == gain
