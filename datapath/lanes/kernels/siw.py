# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The siw module for a kernel: Debian ships its source and not the module.

It is built from linux-source against linux-headers of the very version, in a
build root: a folder with the compiler, the headers and what they need,
unpacked from the suite that the kernel comes from.  So the compiler is the one
that built the kernel, whatever this machine has, and nothing gets installed.
(The tools in Debian 13's headers do not run on Debian 12, whose C library is
older, and Debian 12's compiler lacks options that Debian 13's kernels want.)
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datapath.errors import CapabilityError
from datapath.lanes.kernels import releases
from datapath.lanes.kernels.apt import Apt, Package
from datapath.lanes.kernels.cache import Progress
from datapath.lanes.kernels.unpack import unpack

_SIW = "drivers/infiniband/sw/siw"
# Programs of the kernel's build beside the dependencies of the headers.
_TOOLS = (
    *("bash", "coreutils", "dash", "diffutils", "findutils", "grep", "gzip", "make", "mawk"),
    *("perl-base", "sed", "tar", "xz-utils"),
)
_MERGED = ("bin", "lib", "lib64", "sbin")
_TIMEOUT_S = 900
# The mounts go with the namespace: outside of it these folders stay empty.
_ENTER = 'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'


@dataclass(frozen=True)
class Built:
    """A module, and the tools that made it."""

    module: Path
    compiler: str
    packages: dict[str, str]


def build(apt: Apt, release: str, image: Sequence[Package], work: Path, tell: Progress) -> Built:
    """Build siw.ko for a kernel.

    apt: where the kernel comes from.  image: its packages.  work: an empty
    folder; what is made there is the caller's to remove.

    Raises:
        CapabilityError: a package is not to be had, or the build failed.
    """
    version = image[0].version
    headers = _need(apt, f"linux-headers-{release}", version)
    source = _need(apt, releases.source_package(release), version)
    root = work / "root"
    debs = work / "debs"
    tell(f"downloading headers, source and compiler for siw ({version})")
    wanted = [str(headers), str(source), *_TOOLS]
    packages = apt.download_closure(wanted, debs, have=image)
    tell("unpacking them")
    _make_root(root)
    unpack(packages, root)
    tell("building siw")
    compiler = _compile(root, release, source.name)
    return Built(
        module=root / "build" / _SIW / "siw.ko",
        compiler=compiler,
        packages={package.name: package.version for package in (headers, source)},
    )


def _need(apt: Apt, name: str, version: str) -> Package:
    package = apt.package(name, version)
    if package is None:
        raise apt.missing(f"{name} of version {version}")
    return package


def _make_root(root: Path) -> None:
    """An empty root with merged /usr, as Debian's installer lays it out."""
    for name in ("build", "dev", "proc", "tmp"):
        (root / name).mkdir(parents=True)
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    # Done by maintainer scripts otherwise.
    (root / "usr/bin/awk").symlink_to("mawk")


def _compile(root: Path, release: str, source: str) -> str:
    """Build in the root; returns the compiler's name and version."""
    make = ["make", "-C", f"/usr/src/linux-headers-{release}", f"M=/build/{_SIW}"]
    archive = f"/usr/src/{source}.tar.xz"
    extract = ["tar", "-xf", archive, "-C", "/build", "--strip-components=1"]
    _inside(root, [*extract, f"{source}/{_SIW}"])
    _inside(root, [*make, "CONFIG_RDMA_SIW=m", f"-j{os.cpu_count() or 1}", "modules"])
    _inside(root, ["strip", "--strip-debug", f"/build/{_SIW}/siw.ko"])
    gcc = next((path.name for path in (root / "usr/bin").glob("*-linux-gnu-gcc-[0-9]*")), "gcc")
    return _inside(root, [gcc, "--version"]).partition("\n")[0]


def _inside(root: Path, argv: Sequence[str]) -> str:
    """Run a program with `root` as its root folder; its output."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    enter = ["unshare", *user, "--mount", "--propagation", "private", "sh", "-c", _ENTER]
    try:
        done = subprocess.run(
            [*enter, str(root), *argv],
            env={"PATH": "/usr/sbin:/usr/bin", "LC_ALL": "C", "HOME": "/build"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CapabilityError(f"{argv[0]} in the build root: {error}") from None
    if done.returncode != 0:
        raise CapabilityError(f"{argv[0]} in the build root failed: {_complaint(done.stdout)}")
    return done.stdout


def _complaint(output: str) -> str:
    """The line that tells the error: the first with one, or the last."""
    lines = output.strip().splitlines() or ["no output"]
    return next((line for line in lines if "error:" in line.lower()), lines[-1]).strip()
