# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Debian's own kernels in the user's cache, as guests boot them; fetched if they are not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from datapath.errors import CapabilityError
from datapath.lanes import kernels
from datapath.lanes.kernels import Kernel

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module", params=["6.12", "backports"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    try:
        return kernels.find(request.param)
    except CapabilityError:
        return kernels.install(request.param, lambda text: print(text, file=sys.stderr))


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_image_is_of_this_release(kernel: Kernel) -> None:
    assert f"version {kernel.release} " in output("file", "--brief", str(kernel.vmlinuz))


@pytest.mark.parametrize("module", ["rdma_rxe", "siw", "rdma_ucm", "9p", "virtio_net"])
def test_modprobe_finds_modules(kernel: Kernel, module: str) -> None:
    """With all that they need, by the index that a guest reads."""
    tree = kernel.modules.parents[2]
    lines = output(
        *("/usr/sbin/modprobe", "--dirname", str(tree), "--set-version", kernel.release),
        *("--config", "/dev/null", "--show-depends", module),
    ).splitlines()
    files = [line.split()[1] for line in lines if line.startswith("insmod")]
    assert files[-1].partition(".ko")[0].endswith(f"/{module}")
    for path in files:
        assert path.startswith(str(kernel.modules))


def test_siw_is_built_for_this_release(kernel: Kernel) -> None:
    assert kernel.siw is not None, kernel.siw_reason
    assert kernel.siw_reason == ""
    fields = output("/usr/sbin/modinfo", "--field", "vermagic", str(kernel.siw)).split()
    assert fields[0] == kernel.release
    rxe = next(kernel.modules.rglob("rdma_rxe.ko*"))
    assert output("/usr/sbin/modinfo", "--field", "vermagic", str(rxe)).split() == fields


def test_rdma_of_siw_is_bound_by_its_alias(kernel: Kernel) -> None:
    """`rdma link add ... type siw` makes the kernel ask for this alias."""
    aliases = (kernel.modules / "modules.alias").read_text()
    assert "alias rdma-link-siw siw\n" in aliases
    assert "alias rdma-link-rxe rdma_rxe\n" in aliases
