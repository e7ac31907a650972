# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the front gets into a process, and what it leaves to the real library."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from datapath.native import paths
from tests.verbs.devices import environment, sanitizer

REAL = next(
    (p for p in Path("/usr/lib").glob("*/libibverbs.so.1")), Path("/usr/lib64/libibverbs.so.1")
)
CM = REAL.parent / "librdmacm.so.1"
LIST = """
import ctypes, sys
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
verbs.ibv_free_device_list.argtypes = [ctypes.c_void_p]
count = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(count))
for i in range(count.value):
    print(verbs.ibv_get_device_name(devices[i]).decode())
if devices:
    verbs.ibv_free_device_list(devices)
"""


def run(argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("ways", [["LD_PRELOAD"], ["LD_LIBRARY_PATH"]])
@pytest.mark.parametrize("argv", [["ibv_devices"], [sys.executable, "-c", LIST]])
def test_either_way_of_loading_is_enough(ways: list[str], argv: list[str]) -> None:
    env = environment("udp:127.0.0.1")
    dropped = {"LD_PRELOAD", "LD_LIBRARY_PATH"} - set(ways)
    for name in dropped:
        env[name] = sanitizer().get(name, "")
    done = run(argv, env)
    assert done.returncode == 0, done.stderr
    assert "dp0" in done.stdout


# As NCCL does, which asks for symbols with their versions.
BY_NAME = """
import ctypes, os, sys
verbs = ctypes.CDLL(sys.argv[1])
find = ctypes.CDLL(None).dlvsym
find.restype = ctypes.c_void_p
find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
def symbol(name, version, result, *arguments):
    found = find(verbs._handle, name, version)
    assert found, name
    return ctypes.CFUNCTYPE(result, *arguments)(found)
get_list = symbol(b"ibv_get_device_list", b"IBVERBS_1.1", ctypes.POINTER(ctypes.c_void_p),
                  ctypes.POINTER(ctypes.c_int))
name_of = symbol(b"ibv_get_device_name", b"IBVERBS_1.1", ctypes.c_char_p, ctypes.c_void_p)
count = ctypes.c_int()
devices = get_list(ctypes.byref(count))
print(*[name_of(devices[i]).decode() for i in range(count.value)])
"""


@pytest.mark.parametrize("ways", [["LD_PRELOAD", "LD_LIBRARY_PATH"], ["LD_LIBRARY_PATH"]])
@pytest.mark.parametrize("name", ["libibverbs.so", "libibverbs.so.1"])
def test_a_program_that_opens_libibverbs_by_any_name_finds_the_device(
    name: str, ways: list[str]
) -> None:
    env = environment("udp:127.0.0.1")
    if "LD_PRELOAD" not in ways:
        env["LD_PRELOAD"] = sanitizer().get("LD_PRELOAD", "")
    done = run([sys.executable, "-c", BY_NAME, name], env)
    assert (done.stdout, done.stderr) == ("dp0\n", "")


RDMACM = """
import ctypes, os, sys
cm = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)
cm.rdma_event_str.restype = ctypes.c_char_p
assert cm.rdma_event_str(0) == b"RDMA_CM_EVENT_ADDR_RESOLVED"
maps = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
print(*sorted(os.path.realpath(path) for path in maps if "ibverbs" in path or "dpverbs" in path))
print(*sorted({os.path.realpath(path) for path in maps if "librdmacm" in path}))
"""


@pytest.mark.parametrize("preload", [True, False])
@pytest.mark.parametrize("name", ["librdmacm.so", "librdmacm.so.1"])
def test_librdmacm_is_the_systems_and_binds_to_us(name: str, preload: bool) -> None:
    env = environment("udp:127.0.0.1")
    if not preload:
        env["LD_PRELOAD"] = sanitizer().get("LD_PRELOAD", "")
    done = run([sys.executable, "-c", RDMACM, name], env)
    assert done.returncode == 0, done.stderr
    verbs, cm = done.stdout.splitlines()
    assert verbs == str(paths.verbs_library())
    # By the short name it is there without the package that has it.
    opened = [str(path.resolve()) for path in (paths.compat_dir() / name, CM) if path.exists()]
    assert set(cm.split()) == set(opened)


def test_both_ways_at_once_are_one_library() -> None:
    done = run([sys.executable, "-c", LIST], environment("udp:127.0.0.1"))
    assert done.stdout.split() == ["dp0"], done.stderr
    maps = run(
        [sys.executable, "-c", LIST + "print(open('/proc/self/maps').read())"],
        environment("udp:127.0.0.1"),
    ).stdout
    ours = {line.split()[-1] for line in maps.splitlines() if "libdpverbs" in line}
    assert len(ours) == 1


def test_without_devices_all_is_as_before() -> None:
    env = {**environment("udp:127.0.0.1"), "DATAPATH_DEVICES": ""}
    plain, with_front = run(["ibv_devices"], {}), run(["ibv_devices"], env)
    assert (plain.returncode, plain.stdout) == (with_front.returncode, with_front.stdout)


def exported(library: Path) -> set[str]:
    text = run(["nm", "-D", "--defined-only", str(library)], {}).stdout
    return set(re.findall(r"\w+@@?IBVERBS_\S+", text))


def test_every_symbol_of_the_real_library_is_there() -> None:
    assert exported(REAL) <= exported(paths.verbs_library())


def test_nothing_else_is_exported() -> None:
    text = run(["nm", "-D", "--defined-only", str(paths.verbs_library())], {}).stdout
    names = [line.split()[-1] for line in text.splitlines()]
    ours = re.compile(r"\w+@@?IBVERBS_[\w.]+|dpdv_\w+@@DPDV_1\.0|(IBVERBS|DPDV)_[\w.]+")
    assert [n for n in names if not ours.fullmatch(n)] == []


@pytest.mark.parametrize(
    "library", ["libmlx5.so.1", "libmlx4.so.1", "libefa.so.1", "librdmacm.so.1"]
)
def test_other_libraries_of_rdma_core_link_to_us(library: str) -> None:
    program = f"import ctypes; ctypes.CDLL({library!r}, mode={os.RTLD_NOW})"
    done = run([sys.executable, "-c", program], environment("udp:127.0.0.1"))
    assert done.returncode == 0, done.stderr


FORWARDED = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
assert verbs.ibv_rate_to_mbps(3) == 10000 and verbs.mult_to_ibv_rate(4) == 3
verbs.ibv_wc_status_str.restype = ctypes.c_char_p
assert verbs.ibv_wc_status_str(12) == b"transport retry counter exceeded"
assert verbs.ibv_fork_init() == 0
"""


def test_what_is_not_ours_is_forwarded() -> None:
    done = run([sys.executable, "-c", FORWARDED], environment("udp:127.0.0.1"))
    assert done.returncode == 0, done.stderr


def test_a_shell_never_opens_the_real_library() -> None:
    done = run(["sh", "-c", "cat /proc/$$/maps"], environment("udp:127.0.0.1"))
    assert "libdpverbs" in done.stdout
    assert str(REAL.resolve()) not in done.stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("dp0", "'dp0' is not NAME=PORT[;key=value...]"),
        ("d/0=udp:lo", "'d/0' is not a device name"),
        ("dp0=", "dp0: '' is not a port"),
        ("dp0=udp:lo;speed=9", "dp0: unknown key 'speed'"),
        ("dp0=udp:lo;mode=fast", "dp0: mode='fast' is not auto or standard"),
        ("dp0=udp:lo;window=100", "dp0: window='100' is not a power of two"),
        ("dp0=udp:lo;segment=9000", "dp0: segment='9000' is not a multiple of 4, 256 to 8960"),
        ("dp0=udp:lo;paths=0", "dp0: paths='0' is not 1 to 64"),
        ("dp0=udp:lo;telemetry=yes", "dp0: telemetry='yes' is not 0 or 1"),
        ("dp0=udp:lo;path_mtu=1500", "dp0: path_mtu='1500' is not 256"),
        ("dp0=udp:lo;ecn", "dp0: 'ecn' is not key=value"),
        ("dp0=udp:lo;cc=swift", "dp0: cc='swift' is not the absolute path"),
        ("dp0=udp:lo;min_rto_us=0", "dp0: min_rto_us='0' is not microseconds"),
        ("dp0=udp:lo dp0=udp:lo", "dp0 is there twice"),
    ],
)
def test_a_wrong_device_is_one_line(text: str, complaint: str) -> None:
    env = {**environment("udp:127.0.0.1"), "DATAPATH_DEVICES": f"{text} good=udp:127.0.0.1"}
    done = run(["ibv_devices"], env)
    lines = [line for line in done.stderr.splitlines() if "libdpverbs" in line]
    assert len(lines) == 1
    assert complaint in lines[0]
    assert "good" in done.stdout


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("udp:nosuchdev0", "nosuchdev0"),
        ("tcp:lo", "no port of kind 'tcp'"),
        ("udp:127.0.0.1;cc=/nonexistent.so", "/nonexistent.so"),
        ("udp:127.0.0.1;paths=4", "paths=4: a port of kind udp has one UDP source port"),
    ],
)
def test_a_device_that_cannot_be_opened_says_why(spec: str, complaint: str) -> None:
    env = {**environment("udp:127.0.0.1"), "DATAPATH_DEVICES": f"dp0={spec}"}
    done = run(["ibv_devinfo", "-d", "dp0"], env)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if "libdpverbs" in line]
    assert len(lines) == 1
    assert complaint in lines[0]


def test_calls_that_newer_libraries_have(tmp_path: Path) -> None:
    """A program that knows them gets them, whatever libibverbs is installed."""
    program = tmp_path / "newer"
    sanitize = ["-fsanitize=address,undefined"] if paths.build_name() == "build-san" else []
    source = Path(__file__).parent / "programs" / "newer.c"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", *sanitize, "-o", program, source]
    subprocess.run([*map(str, command), str(paths.verbs_library())], check=True)
    done = run([str(program)], environment("udp:127.0.0.1"))
    assert (done.returncode, done.stderr) == (0, "")
