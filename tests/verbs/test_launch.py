# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dpctl exec, as a library: what is checked before the program starts."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from datapath.errors import CapabilityError, LocalError
from datapath.native import paths
from datapath.verbs import launch
from datapath.verbs.device_keys import DEVICE_KEYS
from datapath.verbs.launch import DeviceSpec, device_environment, exec_program
from datapath.verbs.spec import Transport, TransportOptions
from tests.verbs.devices import sanitizer


@pytest.mark.parametrize(
    "text",
    ["dp0=afxdp:eth1", "a.b-c_9=udp:::1", "dp0=udp:10.0.0.1,opt=1;mode=standard;ecn=1;window=128"],
)
def test_a_device_reads_back_as_it_was_written(text: str) -> None:
    assert str(DeviceSpec.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("dp0", "is not NAME=PORT", "dp0=afxdp:eth1"),
        ("d p=udp:lo", "'d p' is not a device name", "letters"),
        ("dp0=tcp:lo", "'tcp:lo' is not a port", "afxdp:DEV"),
        ("dp0=udp:", "'udp:' is not a port", "udp:ADDRESS"),
        ("dp0=udp:lo;mod=auto", "unknown key 'mod'", "did you mean mode?"),
        ("dp0=udp:lo;mode=fast", "mode='fast' is not valid", "auto or standard"),
        ("dp0=udp:lo;window=100", "window='100' is not valid", "power of two"),
        ("dp0=udp:lo;segment=1402", "segment='1402' is not valid", "multiple of 4"),
        ("dp0=udp:lo;segment=252", "segment='252' is not valid", "multiple of 4"),
        ("dp0=udp:lo;paths=65", "paths='65' is not valid", "1 to 64"),
        ("dp0=udp:lo;telemetry=2", "telemetry='2' is not valid", "0 or 1"),
        ("dp0=udp:lo;cc=/a b.so", "cc='/a b.so' is not valid", "absolute path"),
        ("dp0=udp:lo;ecn", "'ecn' is not key=value", "mode"),
    ],
)
def test_wrong_devices(text: str, message: str, hint: str) -> None:
    with pytest.raises(LocalError) as error:
        DeviceSpec.parse(text)
    assert message in str(error.value)
    assert hint in error.value.hint


def test_the_environment_keeps_what_was_there() -> None:
    base = {"LD_PRELOAD": "libfirst.so libsecond.so", "LD_LIBRARY_PATH": "/opt/lib"}
    env = device_environment(
        "dp0", "udp:lo", cc=Path("/tmp/algo.so"), options={"ecn": 1}, base=base
    )
    assert env["DATAPATH_DEVICES"] == "dp0=udp:lo;ecn=1;cc=/tmp/algo.so"
    assert env["LD_PRELOAD"] == f"libfirst.so:libsecond.so:{paths.verbs_library()}"
    assert env["LD_LIBRARY_PATH"] == f"{paths.compat_dir()}:/opt/lib"
    again = device_environment("dp0", "udp:lo", base=env)
    assert again["LD_PRELOAD"] == env["LD_PRELOAD"]
    assert again["LD_LIBRARY_PATH"] == env["LD_LIBRARY_PATH"]


@pytest.mark.parametrize(
    ("program", "devices", "message", "hint"),
    [
        ([], ["dp0=udp:lo"], "no program", "-- PROGRAM"),
        (["true"], [], "no device", "--device"),
        (["ibv_devinfoo"], ["dp0=udp:lo"], "program 'ibv_devinfoo' not found", "package"),
        (["/usr/bin/ibv_devinfoo"], ["dp0=udp:lo"], "not found", "did you mean ibv_devinfo?"),
        (["true"], ["dp0=udp:loo"], "no network device 'loo'", "did you mean lo?"),
        (["true"], ["dp0=afxdp:10.0.0.1"], "not on 10.0.0.1", "udp:ADDRESS"),
    ],
)
def test_what_cannot_start_says_so(
    program: list[str], devices: list[str], message: str, hint: str
) -> None:
    with pytest.raises(LocalError) as error:
        exec_program(program, devices)
    assert message in str(error.value)
    assert hint in error.value.hint


def other_group() -> int:
    return next(gid for gid in (1, 2) if gid != os.getgid())


def test_a_program_with_another_group_would_ignore_the_front(root: None, tmp_path: Path) -> None:
    program = Path(shutil.copy("/bin/true", tmp_path))
    os.chown(program, -1, other_group())
    program.chmod(0o2755)
    with pytest.raises(LocalError, match="is setgid: the loader would ignore") as error:
        exec_program([str(program)], ["dp0=udp:lo"])
    assert "run a copy" in error.value.hint
    program.chmod(0o2745)  # such a bit does not change the group
    launch._check_program(str(program))


def test_a_program_with_capabilities_would_ignore_the_front(
    root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(shutil.copy("/bin/true", tmp_path))
    net_raw = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)  # VFS_CAP_REVISION_2, effective
    os.setxattr(program, "security.capability", net_raw)
    launch._check_program(str(program))  # root gains nothing
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(LocalError, match="has file capabilities: the loader would") as error:
        exec_program([str(program)], ["dp0=udp:lo"])
    assert "run it as root" in error.value.hint


@pytest.mark.parametrize("name", ["with blank", "semi;colon"])
def test_a_cache_that_no_device_can_name_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    with pytest.raises(LocalError, match=re.escape(f"{tmp_path / name}/datapath/cc")) as error:
        exec_program(["true"], ["dp0=udp:lo"], cc="fixed")
    assert "XDG_CACHE_HOME" in error.value.hint


def test_names_have_the_limit_of_the_front() -> None:
    text = (paths.PACKAGE / "verbs" / "config.h").read_text()
    (limit,) = re.findall(r"DP_NAME_MAX = (\d+)", text)
    assert launch.NAME.fullmatch("x" * int(limit))
    assert not launch.NAME.fullmatch("x" * (int(limit) + 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"series": "s;foo=1"}, "--series: 'foo=1' is no setting"),
        ({"series": "s;qps=1;interval_us=99"}, "--series: 'interval_us=99' is no setting"),
        ({"series": "s;qps=4097"}, "--series: 'qps=4097' is no setting"),
        ({"series": "s;max_bytes"}, "--series: 'max_bytes' is no setting"),
        ({"series": "/nonexist/s;qps=1"}, "--series /nonexist/s: there is no folder /nonexist"),
        ({"stats": Path("/nonexist/s")}, "--stats /nonexist/s: there is no folder /nonexist"),
        ({"stats": Path("/dev/null/s")}, "--stats /dev/null/s: there is no folder /dev/null"),
    ],
)
def test_wrong_files_and_settings_are_told_before_the_program_starts(
    settings: dict[str, str | Path], message: str
) -> None:
    with pytest.raises(LocalError, match=message):
        exec_program(["true"], ["dp0=udp:lo"], **settings)


def test_series_have_the_limits_of_the_front() -> None:
    text = (paths.PACKAGE / "verbs" / "series.c").read_text()
    found = dict(re.findall(r"^\t(\w+_(?:MIN|MAX)) = (\d+),", text, re.MULTILINE))
    limits = launch.SERIES_LIMITS
    assert int(found["INTERVAL_US_MIN"]) == limits["interval_us"][0]
    assert (1, int(found["QPS_MAX"])) == limits["qps"]
    assert int(found["MAX_BYTES_MIN"]) == limits["max_bytes"][0]
    assert set(re.findall(r'"(\w+)=", \d+\)', text)) == set(limits)


def test_afxdp_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CapabilityError) as error:
        launch.check_device(DeviceSpec.parse("dp0=afxdp:lo"))
    assert "dp0=udp:lo" in error.value.hint
    launch.check_device(DeviceSpec.parse("dp0=udp:lo"))


def test_the_program_takes_our_place(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from datapath.verbs.launch import exec_program; "
        "exec_program(['ibv_devinfo', '-d', 'dp0'], ['dp0=udp:127.0.0.1'], mode='standard', "
        f"stats=Path({str(tmp_path / 's')!r}), series='s;qps=1')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **sanitizer(), "PYTHONPATH": str(paths.ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "dp0" in done.stdout
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".series"]


def settings_of(**environ: str) -> dict[str, str]:
    """What a program of `exec_program` finds in its environment."""
    program = (
        "from datapath.verbs.launch import exec_program; "
        "exec_program(['env'], ['dp0=udp:127.0.0.1', 'dp1=udp:127.0.0.2'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **sanitizer(), "PYTHONPATH": str(paths.ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_stacks_are_told_of_the_devices_unless_the_user_has_told_them() -> None:
    found = settings_of(UCX_TLS="all", OMPI_COMM_WORLD_SIZE="1")
    assert found["UCX_TLS"] == "all"
    assert found["UCX_NET_DEVICES"] == "dp0:1,dp1:1"
    assert found["OMPI_MCA_pml"] == "ucx"
    assert "OMPI_MCA_mpi_yield_when_idle" not in found


def test_ranks_that_exceed_the_cpus_yield() -> None:
    assert settings_of(OMPI_COMM_WORLD_SIZE="9999")["OMPI_MCA_mpi_yield_when_idle"] == "1"


IMPORT = """
import datapath.verbs
from pyverbs.device import get_device_list
print([d.name.decode() for d in get_device_list()])
"""


def import_in(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **sanitizer(), "DATAPATH_DEVICES": "dp0=udp:127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_importing_the_package_is_enough_for_pyverbs() -> None:
    assert import_in(IMPORT).stdout.strip() == "['dp0']"
    late = import_in("import pyverbs.device\n" + IMPORT)
    assert late.returncode != 0
    assert "loaded already" in late.stderr


def test_the_page_has_the_values_of_keys() -> None:
    page = (paths.ROOT / "docs" / "verbs.md").read_text()
    table = page.partition("## Device keys")[2].partition("\n\nThe path MTU")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*)$", table, re.MULTILINE))
    for name in ("window", "segment", "paths", "path_mtu"):
        assert DEVICE_KEYS[name].expected in rows[name]


def test_the_file_allows_what_a_device_does() -> None:
    windows = get_args(get_args(TransportOptions.model_fields["window"].annotation)[0])
    assert windows == DEVICE_KEYS["window"].numbers
    assert (
        get_args(Transport.model_fields["path_mtu"].annotation) == DEVICE_KEYS["path_mtu"].numbers
    )
    assert get_args(Transport.model_fields["mode"].annotation) == DEVICE_KEYS["mode"].words
