# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the built C parts are: in a source tree's build folder or in the package.

A source tree is one with a meson.build beside the package; its `build/` is
used, or `build-san/` (AddressSanitizer and UBSan) when the environment says
`DATAPATH_BUILD=san`.  An installed package has its libraries in
`datapath/native/lib/`.  All paths returned are absolute and exist.
"""

from __future__ import annotations

import os
from pathlib import Path

from datapath import cachedir
from datapath.errors import CapabilityError, LocalError

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent
INSTALLED = Path(__file__).resolve().parent / "lib"

BUILDS = {"": "build", "release": "build", "san": "build-san"}


def build_name() -> str:
    """Name of the chosen build folder: `build` or `build-san`.

    Raises LocalError when DATAPATH_BUILD has no meaning.
    """
    choice = os.environ.get("DATAPATH_BUILD", "")
    if choice not in BUILDS:
        raise LocalError(
            f"DATAPATH_BUILD is {choice!r}", hint="set it to san or release, or leave it out"
        )
    return BUILDS[choice]


def in_source_tree() -> bool:
    return (ROOT / "meson.build").is_file()


def _artefact(in_build: str, name: str) -> Path:
    """File `name`, which meson makes in folder `in_build` of the build folder."""
    if in_source_tree():
        path = ROOT / build_name() / in_build / name
        hint = (
            f"run {ROOT}/dpctl --version, which builds what is missing"
            if build_name() == "build"
            else f"run {ROOT}/dpctl selftest, which makes the sanitized build"
        )
    else:
        path = INSTALLED / name
        hint = "install datapath-rdma again: its C parts are missing"
    if not path.exists():
        raise CapabilityError(f"{path} has not been built", hint=hint)
    return path


def libdir() -> Path:
    """Folder of libdpcore.so."""
    return core_library().parent


def core_library() -> Path:
    """libdpcore.so: wire formats and engine, for datapath.native."""
    return _artefact("datapath", "libdpcore.so")


def core_cdef() -> Path:
    """Declarations of libdpcore.so, in the form that cffi reads."""
    return _artefact("datapath", "dpcore.cdef")


def sim_library() -> Path:
    """libdpsim.so: the simulator, for datapath.native.sim."""
    return _artefact("datapath/fabric/sim", "libdpsim.so")


def sim_cdef() -> Path:
    """Declarations of libdpsim.so, in the form that cffi reads."""
    return _artefact("datapath/fabric/sim", "dpsim.cdef")


def virtual_card() -> Path:
    """dp_vnic, the program of a virtual card."""
    return _artefact("datapath/vnic", "dp_vnic")


def connections_program() -> Path:
    """dp-connections, which makes connections by RDMA-CM."""
    return _artefact("datapath/workloads/connections", "dp-connections")


def floor_program() -> Path:
    """dp-floor, which measures AF_XDP and UDP sockets without a protocol."""
    return _artefact("experiments/bench/floor", "dp-floor")


def mpi_benchmark() -> Path:
    """dp-mpi-benchmark, which is built where Open MPI is installed."""
    return _artefact("datapath/workloads/mpi", "dp-mpi-benchmark")


def nccl_plugin() -> Path:
    """libnccl-net-dp.so, the network plug-in for NCCL and RCCL."""
    return _artefact("datapath/collectives/nccl", "libnccl-net-dp.so")


def collective_program() -> Path:
    """dp-collective, one rank of a benchmark of collectives over libdpcoll.so."""
    return _artefact("datapath/collectives", "dp-collective")


def collective_library() -> Path:
    """libdpcoll.so, for datapath.native.coll."""
    return _artefact("datapath/collectives", "libdpcoll.so")


def collective_cdef() -> Path:
    """Declarations of libdpcoll.so, in the form that cffi reads."""
    return _artefact("datapath/collectives", "dpcoll.cdef")


def traffic_generator() -> Path:
    """dp-traffic, the program that runs traffic tables."""
    return _artefact("datapath/workloads/traffic", "dp-traffic")


def tcp_sampler() -> Path:
    """dp-tcp-sampler, the program that samples kernel TCP on a host."""
    return _artefact("datapath/io", "dp-tcp-sampler")


def emulator_program() -> Path:
    """dp_fabric, the emulator of path backend fabric."""
    return _artefact("datapath/fabric/emulator", "dp_fabric")


def cpu_keeper() -> Path:
    """dp-cpu-keeper, the program that runs beside those of a live run while it is measured."""
    return _artefact("datapath/lanes", "dp-cpu-keeper")


def rxe_pacer() -> Path:
    """dp-rxe-pacer, the program that paces the soft-RoCE device of its host."""
    return _artefact("datapath/lanes", "dp-rxe-pacer")


def tcp_registrar() -> Path:
    """dp-tcp-registrar, the program that keeps a TCP congestion control of BPF registered."""
    return _artefact("datapath/lanes", "dp-tcp-registrar")


def verbs_library() -> Path:
    """libdpverbs.so, the verbs front that is preloaded."""
    return _artefact("datapath/verbs", "libdpverbs.so")


def compat_dir() -> Path:
    """Folder for LD_LIBRARY_PATH in which libibverbs.so.1 and libibverbs.so are our front.

    The entries are links, never copies: the loader must see that each is the
    library that LD_PRELOAD names, or it would load a second one.  librdmacm.so
    is there for programs that open it by that name.
    """
    if in_source_tree():
        return _artefact("datapath/verbs", "compat")
    return installed_compat_dir()


def installed_compat_dir() -> Path:
    """The same of an installed package: links in the user's cache."""
    folder = cachedir.make(cachedir.root() / "compat")
    for name in ("libibverbs.so.1", "libibverbs.so"):
        _link(folder / name, verbs_library())
    _link(folder / "librdmacm.so", _artefact("datapath/verbs", "librdmacm.so"))
    return folder


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    fresh = link.parent / f".{link.name}.{os.getpid()}"
    fresh.symlink_to(target)
    fresh.replace(link)


def bpf_object(name: str) -> Path:
    """The compiled BPF program of `datapath/xdp/<name>.bpf.c`."""
    return _artefact("datapath/xdp", f"{name}.bpf.o")


def include_dir() -> Path:
    """Folder to give the compiler with -I: holds engine/cc.h and the other headers."""
    return PACKAGE
