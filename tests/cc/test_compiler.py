# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From Python to an object without Python, and the cache of the results."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from datapath.cc import cache, compile_algorithm, linking, load, subset, toolchain
from datapath.cc.algorithm import registered
from datapath.cc.drivers import Descriptor, NativeAlgorithm, new_ack
from datapath.errors import CapabilityError, LocalError
from datapath.native import paths

from .conftest import WriteAlgorithm

SIMPLE = """\
GAIN = {gain}

@algorithm("simple")
class Simple:
    factor: float = param(2)

    def on_ack(flow, ack):
        flow.cwnd_bytes = GAIN * flow.factor * ack.acked_bytes
"""


DEFAULT = """\
def grow(x, gain=GAIN):
    return gain * x

@algorithm("mine")
class Mine:
    def on_ack(flow, ack):
        flow.cwnd_bytes = grow(ack.acked_bytes)
"""


def answer(path: str, **params: float) -> float:
    """The window that an algorithm sets for one acknowledged byte."""
    native = NativeAlgorithm(compile_algorithm(path, params))
    native.on_ack(new_ack(acked_bytes=1))
    return float(native.flow.cwnd_bytes)


def test_parameters_and_constants_reach_the_code(write: WriteAlgorithm) -> None:
    path = write(SIMPLE.format(gain=3))
    assert answer(path) == 6
    assert answer(path, factor=5) == 15
    assert answer(write(SIMPLE.format(gain=4)), factor=5) == 20


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("empty_cache")
def test_what_is_compiled_again(write: WriteAlgorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(SIMPLE.format(gain=7))
    first = compile_algorithm(path, {})
    assert not first.from_cache
    assert first.params == {"factor": 2.0}
    again = compile_algorithm(path, {"factor": 2})
    assert again.from_cache
    assert again.path == first.path
    monkeypatch.delattr("datapath.cc.codegen.build_object")
    other = compile_algorithm(path, {"factor": 2.5})  # linked, not compiled
    assert not other.from_cache
    assert other.path != first.path
    with pytest.raises(AttributeError, match="build_object"):
        compile_algorithm(write(SIMPLE.format(gain=8)), {})


def test_constants_of_other_files_are_part_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from datapath.cc import algorithm, param\nfrom consts import GAIN\n"
        + SIMPLE.partition("\n")[2]
    )
    for gain in (2, 3):
        (tmp_path / "consts.py").write_text(f"GAIN = {gain}\n" + "#" * gain)
        assert answer(str(tmp_path / "mine.py")) == 2 * gain


def test_defaults_of_arguments_are_part_of_the_key(tmp_path: Path) -> None:
    """They may be constants of another file, which the function does not name."""
    (tmp_path / "mine.py").write_text(
        "from datapath.cc import algorithm\nfrom consts import GAIN\n\n" + DEFAULT
    )
    for gain in (2, 3):
        (tmp_path / "consts.py").write_text(f"GAIN = {gain}\n" + "#" * gain)
        assert answer(str(tmp_path / "mine.py")) == gain


CHOSEN = """\
import math
import os
from datapath.cc import algorithm, state

def two(x):
    return 2 * x

def three(x):
    return 3 * x

choice = os.environ.get("CHOICE")
first, second = (three, two) if choice == "swapped" else (two, three)
root = math.fabs if choice == "native" else math.sqrt

@algorithm("chosen")
class Chosen:
    seen: float = state()

    def on_ack(flow, ack):
        flow.cwnd_bytes = first(ack.acked_bytes) + 10 * second(ack.acked_bytes) + root(64)

    if choice == "hook":
        def on_init(flow):
            flow.seen = 1
"""


def test_what_a_condition_chooses_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text, four programs."""
    path = tmp_path / "chosen.py"
    path.write_text(CHOSEN)
    for choice, window in {"": 40, "swapped": 31, "native": 96, "hook": 40}.items():
        monkeypatch.setenv("CHOICE", choice)
        assert answer(str(path)) == window
        native = NativeAlgorithm(compile_algorithm(str(path)))
        native.on_init()
        assert native.flow.seen == (choice == "hook")


def test_a_module_from_before_its_file_changed_keeps_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not leave it in the cache as that of the new text."""
    path = tmp_path / "edited.py"
    text = SIMPLE.replace("simple", "edited").replace("Simple", "Edited").partition("\n")[2]
    text = "from datapath.cc import algorithm, param\n" + text
    path.write_text(text.replace("GAIN", "5"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("edited")
    path.write_text(text.replace("GAIN", "50"))
    try:
        assert answer("edited") == 10
        assert answer(str(path)) == 100
    finally:
        del sys.modules["edited"], registered["edited"]


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped"])
@pytest.mark.parametrize("suffix", [".so", ".o"])
@pytest.mark.usefixtures("empty_cache")
def test_a_damaged_file_is_built_again(write: WriteAlgorithm, damage: str, suffix: str) -> None:
    path = write(SIMPLE.format(gain=11))
    first = compile_algorithm(path, {})
    objects = list(first.path.parent.glob("simple-*.o"))
    for victim in [first.path, *(objects if suffix == ".o" else [])]:
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        cut = {"empty": data[:0], "truncated": data[:-100], "flipped": data}[damage]
        victim.unlink()  # programs that have it open keep the old one
        victim.write_bytes(cut)
    again = compile_algorithm(path, {})
    assert not again.from_cache
    assert cache.load(again.path) is not None
    assert answer(path) == 22
    assert not list(first.path.parent.glob(".*"))


@pytest.mark.usefixtures("empty_cache")
def test_two_at_once(write: WriteAlgorithm) -> None:
    path = write(SIMPLE.format(gain=13))
    compile_algorithm(path, {})
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: compile_algorithm(path, {"factor": 9}), range(4)))
    assert len({item.path for item in made}) == 1
    assert answer(path, factor=9) == 117


def test_a_hit_needs_neither_numba_nor_numpy() -> None:
    compile_algorithm("swift", {})
    code = (
        "import sys; from datapath.cc import compile_algorithm\n"
        "made = compile_algorithm('swift', {})\n"
        "print(made.from_cache, [m for m in ('numba', 'llvmlite', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "True []"


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CapabilityError) as caught:
        compile_algorithm("fixed", {})
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):  # the XDG specification: both mean the default
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache.folder() == tmp_path / ".cache" / "datapath" / "cc"


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, write: WriteAlgorithm) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CapabilityError, match="no-such-compiler"):
        compile_algorithm(write(SIMPLE.format(gain=17)), {})


REFUSED = """\
def loop(x):
    return max(x, None)

@algorithm("mine")
class Mine:
    count: int = state()
    last: float = state()

    def on_ack(flow, ack):
        {0}
"""


@pytest.mark.parametrize(
    ("statement", "line", "message"),
    [
        ("flow.last = loop(ack.rtt_ns)", 6, "there is no max(float64, none) for these types"),
        ("flow.last = max(flow.last, None)", 14, "there is no max(float64, none) for these types"),
        ("flow.count = 0.5 * ack.rtt_ns", 14, "count is declared int"),
        ("flow.last = (1, 2)", 14, "Cannot cast"),
        ("flow.last = (flow, ack)[0].last", 14, ""),
        (
            "flow.last = min(0.0, flow if flow.last > 0 else ack)",
            14,
            "cannot be compiled: Cannot unify ",
        ),
        ("flow.last = 1 << ack.rtt_ns", 14, "there is no lshift("),
        ("for i in range(ack.n_hops): flow.last = i", 14, "range() takes whole numbers"),
        ("n = ack.n_hops; flow.last = len(range(0, n))", 14, "range() takes whole numbers"),
        ("for i in range(min(int(ack.n_hops), len(ack.hop))): flow.last = i", 14, ""),
        ("for i in range(flow.count): flow.last = i", 14, ""),
        ("flow.last = 2 ** -flow.count", 14, "a power of a whole number"),
        ("n = flow.count; n **= n; flow.last = n", 14, "a power of a whole number"),
        ("flow.last = flow.count ** 2 + 2.0 ** -flow.count", 14, ""),
        ("flow.last = ~(flow.last > 0)", 14, "~ of true or false"),
        ("flow.last = ~flow.count", 14, ""),
        ("flow.last = pow(2, -flow.count)", 14, "a power of a whole number"),
        ("flow.last = pow(2, flow.count)", 14, "a power of a whole number"),
        ("flow.last = pow(flow.count, 2) + pow(2.0, -flow.count)", 14, ""),
        ("flow.last = (flow.last > 1) + (flow.last > 2)", 14, "arithmetic of true and false alone"),
        ("flow.last = -(flow.last > 1)", 14, "arithmetic of true and false alone"),
        ("n = flow.last > 1; n *= n; flow.last = n", 14, "arithmetic of true and false alone"),
        ("flow.last = int(flow.last > 1) + (flow.last > 2)", 14, ""),
        ("flow.last *= flow.last > 1", 14, ""),
        ("flow.last = (flow.last > 1) & (flow.last > 2)", 14, ""),
    ],
)
def test_numba_s_refusals_name_the_line(
    write: WriteAlgorithm, statement: str, line: int, message: str
) -> None:
    path = write(REFUSED.format(statement))
    if not message:
        assert compile_algorithm(path, {}).path.exists()
        return
    with pytest.raises(LocalError) as caught:
        compile_algorithm(path, {})
    assert f"mine.py:{line}: " in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("flow.last = (1.25, 1)[flow.count]", "1.0, not 1"),
        ("flow.last = flow.many[ack.rtt_ns]", "an index is a whole number"),
        ("flow.last = flow.many[ack.rtt_ns > 1]", "an index is a whole number"),
        ("flow.many[ack.rtt_ns] = 1", "an index is a whole number"),
        ("flow.last = ack.hop[ack.n_hops].ts_ns", "an index is a whole number"),
        ("flow.last = math.log(8, 2)", "divide by math.log(base)"),
        ("flow.last = math.cbrt(27)", "what it lacks"),
        ("flow.last = max(flow.last, None)", "must run without Python"),
    ],
)
def test_numba_s_refusals_tell_what_to_write(
    write: WriteAlgorithm, statement: str, hint: str
) -> None:
    many = "last: float = state()\n    many: list[float] = state(length=4)"
    path = write(REFUSED.replace("last: float = state()", many).format(statement))
    with pytest.raises(LocalError) as caught:
        compile_algorithm(path, {})
    assert hint in caught.value.hint


def test_a_parameter_cannot_be_set_behind_the_checker(write: WriteAlgorithm) -> None:
    path = write(
        """
        @algorithm("mine")
        class Mine:
            gain: float = param(1)
            def on_ack(flow, ack):
                (flow, ack)[0].gain = 2
        """
    )
    with pytest.raises(LocalError, match=r"mine.py:10: .*set"):
        compile_algorithm(path, {})


def test_an_index_outside_the_hops_reads_nothing(write: WriteAlgorithm) -> None:
    path = write(
        """
        @algorithm("mine")
        class Mine:
            seen: float = state(-1)
            def on_ack(flow, ack):
                flow.seen = ack.hop[int(ack.n_hops)].ts_ns
        """
    )
    native = NativeAlgorithm(compile_algorithm(path, {}))
    for hops, seen in ((7, 0.0), (8, 0.0), (10**6, 0.0)):
        native.on_ack(new_ack(n_hops=hops))
        assert native.flow.seen == seen


@pytest.mark.parametrize("way", ["environment", "file"])
def test_bounds_are_checked_whatever_numba_is_told(tmp_path: Path, way: str) -> None:
    """The object stays in the cache, where others find it."""
    (tmp_path / "mine.py").write_text(
        "from datapath.cc import algorithm, state\n"
        '@algorithm("mine")\nclass Mine:\n    a: list[float] = state(length=4)\n'
        "    def on_ack(flow, ack):\n"
        "        flow.a[int(ack.path)] = 1\n        flow.cwnd_bytes = 1\n"
    )
    told = {"NUMBA_BOUNDSCHECK": "0"} if way == "environment" else {}
    if way == "file":
        (tmp_path / ".numba_config.yaml").write_text("boundscheck: 0\n")
    code = (
        "from datapath.cc import compile_algorithm\n"
        "from datapath.cc.drivers import NativeAlgorithm, new_ack\n"
        "native = NativeAlgorithm(compile_algorithm('./mine.py'))\n"
        "native.on_ack(new_ack(path=4))\n"
        "print(native.flow.cwnd_bytes)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=tmp_path,
        env=os.environ
        | told
        | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(paths.ROOT)},
    )
    assert done.stdout.strip() == "0.0"


BY_PATH = """
        def path_of(ack):
            return ack.path

        def same(record):
            return record

        def second(both):
            return both[1].path

        @algorithm("mine")
        class Mine:
            def on_ack(flow, ack):
                {0}
                flow.cwnd_bytes = path
        """


@pytest.mark.parametrize(
    ("lines", "by_path"),
    [
        ("path = ack.rtt_ns", 0),
        ("path = ack.path", 1),
        ("path = path_of(ack)", 1),
        ("a: object = ack; path = a.path", 1),
        ("a = ack if flow.now_ns else ack; path = a.path", 1),
        ("path = same(ack).path", 1),
        ("path = (flow, ack)[1].path", 1),
        ("path = second((flow, ack))", 1),
        ("path = same(flow).paths", 0),
        ("for a in (ack,): path = a.path", 1),
    ],
)
def test_which_functions_are_called_for_each_path(
    write: WriteAlgorithm, lines: str, by_path: int
) -> None:
    """Those that look at ack.path, whatever way the record takes."""
    made = compile_algorithm(write(BY_PATH.format(lines)))
    assert Descriptor(made).by_path == by_path


def test_hooks_that_are_left_out(write: WriteAlgorithm) -> None:
    path = write('@algorithm("mine")\nclass Mine:\n    def on_ack(flow, ack): pass\n')
    native = NativeAlgorithm(compile_algorithm(path, {}))
    native.flow.mss_bytes, native.flow.max_cwnd_bytes = 1000, 1e6
    native.on_init()
    assert native.flow.cwnd_bytes == 10_000
    native.flow.max_cwnd_bytes = 4000
    native.on_init()
    assert native.flow.cwnd_bytes == 4000
    native.on_timeout(1.0)
    assert native.flow.cwnd_bytes == 4000


@pytest.mark.parametrize("name", ["fixed", "dctcp", "swift"])
def test_the_object_needs_only_libc_and_libm(name: str) -> None:
    data = compile_algorithm(name, {}).path.read_bytes()
    undefined = linking._symbols(data, ".dynsym", defined=False)
    assert undefined <= linking.LIBC | linking.LIBM | linking._TOOLCHAIN
    assert linking._symbols(data, ".dynsym", defined=True) == {"dp_cc_algo"}


def test_what_needs_python_is_named(tmp_path: Path) -> None:
    made = subset.analyse(load("fixed"))
    values = made.algorithm.resolve({})
    with pytest.raises(LocalError, match=r"fixed.py:\d+: compiled Fixed allocates memory"):
        linking.link(made, values, _object_that_calls("NRT_Allocate", tmp_path))
    with pytest.raises(LocalError, match="compiled Fixed needs system"):
        linking.link(made, values, _object_that_calls("system", tmp_path))


def _object_that_calls(name: str, folder: Path) -> bytes:
    (folder / "a.c").write_text(f"void {name}(void); void dp_cc_on_ack(void) {{ {name}(); }}")
    subprocess.run(["gcc", "-c", "a.c"], cwd=folder, check=True)
    return (folder / "a.o").read_bytes()


@pytest.mark.parametrize("name", ["fixed", "dctcp", "swift"])
def test_a_c_program_runs_it(name: str, tmp_path: Path) -> None:
    """Compiled by gcc against engine/cc.h alone; there is no Python in the process."""
    host = tmp_path / "host"
    folder = Path(__file__).parent
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    include = f"-I{linking.HEADER.parent.parent}"
    subprocess.run(["gcc", *flags, include, "-o", host, folder / "host.c", "-ldl"], check=True)
    compiled = compile_algorithm(name, {})
    done = subprocess.run(
        [host, compiled.path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"LD_BIND_NOW": "1", "PATH": os.environ["PATH"]},
    )
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    native = NativeAlgorithm(compiled)
    native.flow.mss_bytes, native.flow.max_cwnd_bytes = 4096, 1e6
    native.on_init()
    for number in range(1, 101):
        native.flow.now_ns, native.flow.srtt_ns = number * 1e5, 45_000
        native.flow.delivered_bytes = number * 4096
        native.on_ack(
            new_ack(
                now_ns=number * 1e5,
                rtt_ns=30_000 + 1000 * number,
                acked_bytes=4096,
                marked_bytes=4096 * (number % 4 == 0),
                inflight_bytes=65536,
                delivered_bytes=number * 4096,
                prior_delivered_bytes=(number - 10) * 4096,
            )
        )
    native.on_timeout(2e7)
    assert lines["name"] == name
    assert float(lines["cwnd_bytes"]) == native.flow.cwnd_bytes
    assert float(lines["pacing_rate_bps"]) == native.flow.pacing_rate_bps


def test_without_a_compiler_the_one_of_a_python_package_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/fresh/wheel.sh runs it; here it is found."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "ziglang.py").touch()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        compiling, linking_ = toolchain._commands(Path("/include"))
    assert compiling[:2] == [str(tmp_path / "zig"), "clang"]
    assert linking_[:2] == [str(tmp_path / "zig"), "ld.lld"]
    if importlib.util.find_spec("ziglang") is None:
        with pytest.raises(CapabilityError, match="no C compiler"):
            toolchain._commands(Path("/include"))
    monkeypatch.setenv("CC", "clang -m64")
    (command,) = toolchain._commands(Path("/include"))
    assert command[:2] == ["clang", "-m64"]
