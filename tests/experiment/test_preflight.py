# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a machine lacks is told all at once, before anything is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from datapath.errors import CapabilityError, LocalError
from datapath.experiment import preflight
from datapath.experiment.preflight import Lacking
from datapath.native import paths

from .conftest import Load


def lacks(load: Load, old: str = "", new: str = "") -> dict[str, str]:
    with pytest.raises(Lacking) as caught:
        preflight.check(load(old, new))
    mistakes = all(isinstance(lack, LocalError) for lack in caught.value.lacks)
    assert caught.value.exit_code == (2 if mistakes else 3)
    return {str(lack): lack.hint for lack in caught.value.lacks}


def test_missing_programs_come_with_their_packages(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = lacks(load)
    assert found["program ib_write_bw is not installed"] == "apt-get install perftest"
    assert found["program iperf3 is not installed"] == "apt-get install iperf3"
    assert found["program sockperf is not installed"] == "apt-get install sockperf"
    assert found["program ip is not installed"] == "apt-get install iproute2"


def test_guests_see_the_folder_of_results(load: Load) -> None:
    with pytest.raises(Lacking) as caught:
        preflight.check(load("mtu: 9000", "lane: vm"), Path("/dev/shm/r"))
    said = {str(lack): lack.hint for lack in caught.value.lacks}
    words = "guests do not see results in /dev/shm/r: they have their own /dev"
    assert said[words] == "choose another folder with --out"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mtu: 9000", "lane: sim", "workload perftest runs programs, and hosts of lane sim run"),
        ("mtu: 9000", "lane: sim", "lane sim has no device kernel"),
        ("mtu: 9000", "lane: vm}\nxdp: {source: x.c", "lane vm runs no XDP programs"),
        ("mtu: 9000", "lane: sim}\nxdp: {source: x.c", "lane sim runs no XDP programs"),
        ("loss: 0", "backend: netem", "path backend netem is not in this version"),
        ("transport.port: afxdp", "transport.device: rxe", "device rxe is not for namespaces"),
        (
            "set: {transport.port: afxdp}",
            "set: {topology.mtu: 4200, transport.options.telemetry: true}",
            "telemetry needs 132 bytes in packets beside the path MTU of 4096, and an MTU of 4200",
        ),
        (
            "set: {transport.port: afxdp}",
            "set: {transport.port: udp, transport.options.paths: 4}",
            "options.paths is 4, and a port of kind udp has one UDP source port",
        ),
    ],
)
def test_what_this_version_has_not(
    load: Load, tmp_path: Path, old: str, new: str, said: str
) -> None:
    (tmp_path / "x.c").write_text("int x(struct xdp_md *ctx) { return XDP_PASS; }\n")
    assert any(said in lack for lack in lacks(load, old, new))


def test_mistakes_of_the_file_alone_exit_as_such() -> None:
    wrong, missing = LocalError("a mistake"), CapabilityError("no program")
    assert Lacking([wrong, wrong]).exit_code == LocalError.exit_code
    assert Lacking([wrong, missing]).exit_code == CapabilityError.exit_code


PLAIN = """\
set -eu
cd "$1"
for path in /*; do
    if [ -L "$path" ]; then cp -P "$path" .
    elif [ -d "$path" ]; then mkdir ".$path"; mount --rbind "$path" ".$path"
    fi
done
[ "$2" = plain ] || { mount --rbind . . && cd "$1"; }
shift 2
exec chroot . "$@"
"""
CHECK = """\
import sys
from pathlib import Path
from datapath.errors import CapabilityError, LocalError
from datapath.experiment import preflight
from datapath.experiment.load import load_text
try:
    preflight.check(load_text(sys.argv[1], Path("/tmp/e.yaml")))
except preflight.Lacking as lacking:
    print(*(f"{lack}; {lack.hint}" for lack in lacking.lacks), sep="\\n")
"""


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("lane", ["netns", "vm"])
@pytest.mark.parametrize("kind", ["plain", "bound"])
def test_a_chroot_whose_root_is_no_mount_point(tmp_path: Path, lane: str, kind: str) -> None:
    """Networks cannot be made there.  The hint's remedy makes the check content."""
    (tmp_path / "root").mkdir()
    text = (
        f"version: 1\nname: e\ntopology: {{lane: {lane}}}\ntransport: {{device: kernel}}\n"
        "workload: {kind: iperf3}\n"
    )
    check = [sys.executable, "-c", CHECK, text]
    script = ["bash", "-c", PLAIN, "bash", str(tmp_path / "root"), kind, *check]
    done = subprocess.run(
        ["unshare", "--mount", *script], capture_output=True, text=True, check=False, cwd=paths.ROOT
    )
    assert done.returncode == 0, done.stderr
    told = "the root directory is no mount point" in done.stdout
    assert told == (kind == "plain"), done.stdout
    if told:
        assert "mount --rbind FOLDER FOLDER" in done.stdout


def test_mount_points_are_read(tmp_path: Path) -> None:
    """The root has a line of its own, also where mount points have odd names."""
    table = tmp_path / "mountinfo"
    line = "36 35 98:0 /mnt1 {} rw,noatime - ext3 /dev/root rw\n"
    table.write_text(line.format("/a\\040/"))
    assert not preflight.root_is_mount_point(table)
    table.write_text(line.format("/sys") + line.format("/"))
    assert preflight.root_is_mount_point(table)
    assert preflight.root_is_mount_point(tmp_path / "none"), "without /proc nothing is known"
