# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Mistakes in the functions: found without numba, each at its line."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from datapath.cc import compile_algorithm, load
from datapath.cc.subset import analyse
from datapath.errors import LocalError

from .conftest import WriteAlgorithm

FILE = """\
import os
import numpy as np
LIST = [1, 2]
TEXT = "a"

def helper(x, y=1.0):
    return x * y

def reads(record):
    return record.nothing

@algorithm("mine")
class Mine:
    gain: float = param(0.5)
    count: int = state()
    last: float = state()
    many: list[float] = state(length=3)

    def on_ack(flow, ack):
        {0}
"""
LINE = 5 + 19  # of the first statement of on_ack


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        ("flow.cwnd_byte = 1", "flow has no member cwnd_byte", "did you mean cwnd_bytes?"),
        ("flow.cwnd_bytes = flow.gian", "flow has no member gian", "did you mean gain?"),
        ("flow.last = ack.rtt", "ack has no member rtt", "did you mean rtt_ns?"),
        ("flow.last = ack.hop[0].queue", "hop has no member queue", "queue_bytes"),
        ("flow.last = ack.hop.ts_ns", "hop has no member ts_ns", "ack.hop[i].ts_ns"),
        ("h = ack.hop[0]; flow.last = h.tx", "hop has no member tx", "tx_bytes"),
        ("flow.gain = 1", "gain is a parameter", "state"),
        ("flow.gain += 1", "gain is a parameter", "state"),
        ("flow.srtt_ns = 1", "flow.srtt_ns is set by the transport", "cwnd_bytes"),
        ("ack.now_ns = 1", "ack.now_ns is an input", ""),
        ("f = flow; f.gain = 1", "gain is a parameter", ""),
        ("flow.last, flow.gain = 1, 2", "gain is a parameter", ""),
        ("x = [1]", "a list is an object", "tuple"),
        ("x = {1: 2}", "a dict is an object", ""),
        ("x = [i for i in range(3)]", "a list is an object", "for loop"),
        ("x = f'{flow}'", "text is an object", ""),
        ("x = 'a'", "'a' is not a number", ""),
        ("x = 1j", "1j is not a number", ""),
        ("raise ValueError", "a hook cannot raise", "safe window"),
        ("assert flow.last > 0", "a hook cannot assert", "test"),
        ("import math", "imports stand at the top", ""),
        ("global LIST", "flows share no variables", "state"),
        ("x = lambda: 1", "functions stand at the top", ""),
        ("x = LIST[0]", "LIST is a list", "tuples of numbers"),
        ("x = TEXT", "TEXT is a str", ""),
        ("x = gain", "name 'gain' is not defined", "write flow.gain"),
        ("x = helpr(1)", "name 'helpr' is not defined", "did you mean helper?"),
        ("x = os.getpid()", "module os cannot be used here", "no clock but now_ns"),
        ("x = os.getenv(1)", "module os cannot be used here", "from os import getenv"),
        ("x = os", "module os cannot be used here", ""),
        ("a: object = ack; x = a.rtt", "ack has no member rtt", "rtt_ns"),
        ("b = a = ack; x = a.rtt", "ack has no member rtt", "rtt_ns"),
        ("x = (ack if flow.last else ack).rtt", "ack has no member rtt", "rtt_ns"),
        ("x = math.sqrtt(2)", "there is no math.sqrtt", "did you mean sqrt?"),
        ("x = np.zeros(3)", "numpy.zeros cannot be used here", "ufuncs"),
        ("x = math.fsum((1.0, 2.0))", "math.fsum cannot be used here", ""),
        ("print(flow.last)", "print is a builtin_function_or_method", ""),
        ("x = sorted((1, 2))", "sorted is a builtin_function_or_method", ""),
        ("x = (1, 2); x[0] = 3", "cannot be changed by index", ""),
        ("flow.many = 1", "flow.many is an array", "flow.many[i]"),
        ("flow.many[0].x = 1", "is a number and has no member x", ""),
        ("flow.last = flow.many.x", "is an array and has no member x", ""),
        ("flow.last[0] = 1", "cannot be changed by index", ""),
        ("ack.hop[0] = 1", "cannot be changed by index", ""),
        ("flow.last == 1", "no effect", ""),
        ("flow.last = 1 if (ack.rtt_ns > 1) is True else 2", "`is` compares objects", "write =="),
        ("flow.last = 1 if 0 < ack.rtt_ns is not flow.last else 2", "`is` compares objects", "!="),
        ("x = flow.last.real", "flow.last is a number", ""),
        ("x = reads(flow)", "flow has no member nothing", ""),
    ],
)
def test_mistakes(write: WriteAlgorithm, statement: str, message: str, hint: str) -> None:
    path = write(FILE.format(statement))
    with pytest.raises(LocalError) as caught:
        load(path)
    line = LINE if "reads(" not in statement else 5 + 9
    assert f"mine.py:{line}: " in str(caught.value)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_now_ns_is_a_number(write: WriteAlgorithm) -> None:
    path = write(
        """
        @algorithm("mine")
        class Mine:
            def on_ack(flow, ack): pass
            def on_timeout(flow, now_ns):
                flow.cwnd_bytes = now_ns.value
        """
    )
    with pytest.raises(LocalError, match=r"mine.py:10: now_ns is a number"):
        load(path)


def test_closures_are_refused(write: WriteAlgorithm) -> None:
    path = write(
        """
        def make(k):
            @algorithm("mine")
            class Mine:
                def on_ack(flow, ack):
                    flow.cwnd_bytes = k
        make(1)
        """
    )
    with pytest.raises(LocalError, match=r"mine.py:9: on_ack uses k of an enclosing function"):
        load(path)


def test_what_is_allowed_is_compiled(write: WriteAlgorithm) -> None:
    path = write(
        """
        import numpy as np
        from math import sqrt

        PAIR = (1.0, (2, True))
        LIMIT = 1e9

        def share(part, whole=1.0):
            '''Part of a whole.'''
            return part / whole if whole > 0 else 0.0

        def oldest(ack):
            best = math.inf
            for i in range(int(ack.n_hops)):
                hop = ack.hop[i]
                best = min(best, hop.ts_ns)
            return best

        @algorithm("mine")
        class Mine:
            eager: bool = param(True)
            count: int = state()
            last: float = state()

            @staticmethod
            def on_ack(flow, ack):
                '''A docstring.'''
                a, b = PAIR
                flow.count += 1
                f = flow
                while flow.count > 100:
                    flow.count -= 100
                    if flow.count == 50:
                        break
                    elif not flow.eager:
                        continue
                x: float = np.maximum(sqrt(abs(ack.rtt_ns)), a) + b[0]
                x += share(part=ack.marked_bytes, whole=ack.acked_bytes) + (1 if b[1] else 0)
                f.last = min(x, oldest(ack), LIMIT) if 0 < x < LIMIT else np.pi
                flow.cwnd_bytes = max(flow.mss_bytes, round(flow.max_cwnd_bytes / 2))
                return

            def on_timeout(flow, now_ns):
                flow.last = now_ns + pow(2, 3) + len(PAIR) + math.floor(2.5) + divmod(7, 2)[0]
        """
    )
    assert compile_algorithm(path, {}).path.exists()


def test_constants_and_helpers_of_neighbours(tmp_path: Path) -> None:
    (tmp_path / "near.py").write_text("SCALE = 3.0\ndef double(x):\n    return 2 * x * SCALE\n")
    (tmp_path / "mine.py").write_text(
        "from datapath.cc import algorithm\nfrom near import double, SCALE\n"
        '@algorithm("mine")\nclass Mine:\n    def on_ack(flow, ack):\n'
        "        flow.cwnd_bytes = double(flow.mss_bytes) + SCALE\n"
    )
    program = analyse(load(str(tmp_path / "mine.py")))
    assert [item.__name__ for item in program.helpers] == ["double"]
    assert [Path(item).name for item in program.files] == ["mine.py", "near.py"]
    assert {name for _, name in program.constants} == {"SCALE"}
    assert "near" not in sys.modules
    assert compile_algorithm(str(tmp_path / "mine.py"), {}).path.exists()


@pytest.mark.parametrize("arguments", ["x, *, y=2", "x, /, y=2"])
def test_marks_among_the_arguments_of_a_helper_are_refused(
    write: WriteAlgorithm, arguments: str
) -> None:
    path = write(
        f"""
        def scaled({arguments}):
            return x * y

        @algorithm("mine")
        class Mine:
            def on_ack(flow, ack):
                flow.cwnd_bytes = scaled(3.0)
        """
    )
    with pytest.raises(LocalError, match=r"mine.py:6: scaled has / or \* among its arguments"):
        load(path)


@pytest.mark.parametrize(
    ("helpers", "line", "message"),
    [
        ("def one(x):\n    return one(x - 1) if x > 0 else 0.0", 11, "one calls itself"),
        (
            "def one(x):\n    return two(x)\n\ndef two(x):\n    return one(x)",
            14,
            "one calls itself by way of two",
        ),
    ],
)
def test_a_helper_that_calls_itself(
    write: WriteAlgorithm, helpers: str, line: int, message: str
) -> None:
    text = """\
        @algorithm("mine")
        class Mine:
            def on_ack(flow, ack):
                flow.cwnd_bytes = one(3.0)

        """
    path = write(textwrap.dedent(text) + helpers + "\n")
    with pytest.raises(LocalError, match=rf"(?m)mine.py:{line}: {message}$"):
        load(path)
