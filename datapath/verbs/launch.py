# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Run any verbs program with one of our devices.

A program gets its devices through its environment: `DATAPATH_DEVICES` names
them, `LD_PRELOAD` and `LD_LIBRARY_PATH` put the verbs front (libdpverbs.so) in
the place of libibverbs.so.1.  The syntax is that of datapath/verbs/config.h:

    NAME=PORT[;key=value...]      dp0=afxdp:eth1;mode=standard
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from datapath import privileges
from datapath.errors import CapabilityError, LocalError
from datapath.native import paths
from datapath.spelling import did_you_mean
from datapath.verbs import sysfs
from datapath.verbs.device_keys import DEVICE_KEYS

NAME_MAX = 55
NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{NAME_MAX}}}")
"""As config.h has them."""
PORT_KINDS = ("afxdp", "udp")
NETDEVS = Path("/sys/class/net")
UCX_TRANSPORTS = "rc_verbs,ud_verbs:aux,self"
"""Connections, which UCX sets up by datagrams; "self" is a process's way to itself."""
OPEN_MPI = {
    # By UCX alone: to Open MPI, namespaces of one machine are one host, with shared memory.
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_osc": "ucx",
    "OMPI_MCA_btl": "self",
    # Otherwise it takes UCX for cards of certain makers alone.
    "OMPI_MCA_opal_common_ucx_tls": "any",
    "OMPI_MCA_opal_common_ucx_devices": "any",
}
OPEN_MPI_YIELDS = {"OMPI_MCA_mpi_yield_when_idle": "1"}
"""Where ranks exceed CPUs.  mpirun takes each namespace for a machine with all CPUs to itself, and
would let ranks that wait spin for whole slices of the kernel, while others wait for the CPU."""

SERIES_LIMITS = {
    "interval_us": (100, 2**32 - 1),
    "qps": (1, 4096),
    "max_bytes": (4096, 2**32 - 1),
}
"""Settings behind the prefix of a series: least and most, as series.c has them."""


@dataclass
class DeviceSpec:
    """One device: its name, the port's specification, and options."""

    name: str
    port: str
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> DeviceSpec:
        """Read "NAME=PORT[;key=value...]"; LocalError says what is wrong."""
        head, *options = text.split(";")
        name, equals, port = head.partition("=")
        if not equals:
            raise LocalError(
                f"device {text!r} is not NAME=PORT", hint="write, for example, dp0=afxdp:eth1"
            )
        device = cls(name, port)
        for option in filter(None, options):
            key, equals, value = option.partition("=")
            if not equals:
                raise LocalError(
                    f"device {name}: {option!r} is not key=value",
                    hint=f"keys are {', '.join(DEVICE_KEYS)}",
                )
            device.options[key] = value
        device.check()
        return device

    @property
    def kind(self) -> str:
        return self.port.partition(":")[0]

    @property
    def where(self) -> str:
        """The network device or address of the port."""
        return self.port.partition(":")[2].partition(",")[0]

    def check(self) -> None:
        """LocalError when the front would refuse the text."""
        if not NAME.fullmatch(self.name):
            raise LocalError(
                f"{self.name!r} is not a device name",
                hint=f"use letters, digits, '_', '.' and '-', at most {NAME_MAX}",
            )
        if self.kind not in PORT_KINDS or not self.where or re.search(r"[\s;]", self.port):
            raise LocalError(
                f"device {self.name}: {self.port!r} is not a port",
                hint="ports are afxdp:DEV and udp:ADDRESS or udp:DEV",
            )
        for key, value in self.options.items():
            if key not in DEVICE_KEYS:
                raise LocalError(
                    f"device {self.name}: unknown key {key!r}",
                    hint=did_you_mean(key, list(DEVICE_KEYS), "keys are"),
                )
            row = DEVICE_KEYS[key]
            if not row.allows(value) or re.search(r"[\s;]", value):
                raise LocalError(
                    f"device {self.name}: {key}={value!r} is not valid",
                    hint=f"give {row.expected}",
                )

    def __str__(self) -> str:
        options = "".join(f";{key}={value}" for key, value in self.options.items())
        return f"{self.name}={self.port}{options}"


def device_environment(
    device: str,
    spec: str,
    *,
    cc: Path | None = None,
    options: Mapping[str, object] | None = None,
    base: Mapping[str, str] | None = None,
    place: Callable[[Path], str] = str,
) -> dict[str, str]:
    """Variables that give a program the device `device`.

    device: its name, "dp0".  spec: its port, "afxdp:eth1".  cc: a compiled
    algorithm.  options: keys of DEVICE_KEYS.  base: the environment that is
    added to (this process's): what it preloads and where it finds libraries
    is kept.  place: where the program will find a file or folder of this
    machine.  Raises LocalError for what the front would refuse, and
    CapabilityError when the front has not been built.
    """
    parsed = DeviceSpec(device, spec, {k: str(v) for k, v in (options or {}).items()})
    if cc is not None:
        parsed.options["cc"] = place(Path(cc).resolve())
    parsed.check()
    return _environment([parsed], os.environ if base is None else base, place)


def _environment(
    devices: Sequence[DeviceSpec], base: Mapping[str, str], place: Callable[[Path], str] = str
) -> dict[str, str]:
    front, compat = place(paths.verbs_library()), place(paths.compat_dir())
    preload = [p for p in re.split(r"[ :]+", base.get("LD_PRELOAD", "")) if p and p != front]
    folders = [p for p in base.get("LD_LIBRARY_PATH", "").split(":") if p and p != compat]
    return {
        "DATAPATH_DEVICES": " ".join(map(str, devices)),
        # The front comes last, because a sanitizer's library has to come first.
        "LD_PRELOAD": ":".join([*preload, front]),
        "LD_LIBRARY_PATH": ":".join([compat, *folders]),
    }


def _stack_settings(devices: Sequence[DeviceSpec], base: Mapping[str, str]) -> dict[str, str]:
    """Has UCX and Open MPI use these devices.  base: the environment that mpirun has given."""
    names = ",".join(f"{device.name}:1" for device in devices)
    settings = {**OPEN_MPI, "UCX_TLS": UCX_TRANSPORTS, "UCX_NET_DEVICES": names}
    ranks = base.get("OMPI_COMM_WORLD_SIZE", "")
    if ranks.isdecimal() and int(ranks) > len(os.sched_getaffinity(0)):
        settings |= OPEN_MPI_YIELDS
    return settings


def _check_program(name: str) -> str:
    """The program's path; LocalError when it cannot be run with a front."""
    path = shutil.which(name)
    if path is None:
        folder = Path(name).parent
        known = [p.name for p in folder.iterdir()] if "/" in name and folder.is_dir() else []
        raise LocalError(
            f"program {name!r} not found",
            hint=did_you_mean(Path(name).name, known) or "give its path, or install its package",
        )
    _check_loader(path)
    return path


def _check_loader(program: str) -> None:
    """LocalError when the program gets rights that this process lacks.

    The kernel then tells the loader (AT_SECURE), which ignores LD_PRELOAD.  Source: ld.so(8), and
    cap_bprm_creds_from_file() of the kernel.
    """
    found = Path(program).stat()
    runs_as_group = found.st_mode & stat.S_ISGID and found.st_mode & stat.S_IXGRP
    if found.st_mode & stat.S_ISUID and found.st_uid != os.getuid():
        what, hint = "is setuid", "run it as its owner"
    elif runs_as_group and found.st_gid != os.getgid():
        what, hint = "is setgid", "run a copy of it, which is not (cp)"
    elif os.getuid() != 0 and _has_capabilities(program):
        what, hint = "has file capabilities", "run it as root, or a copy, which has none (cp)"
    else:
        return
    raise LocalError(f"{program} {what}: the loader would ignore the verbs front", hint=hint)


def _has_capabilities(program: str) -> bool:
    try:
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


def _check_netdev(device: DeviceSpec) -> None:
    name = device.where
    if not (NETDEVS / name).exists():
        known = sorted(path.name for path in NETDEVS.iterdir())
        raise LocalError(
            f"device {device.name}: there is no network device {name!r} here",
            hint=did_you_mean(name, known, "there are"),
        )


def check_device(device: DeviceSpec) -> None:
    """Raise, before the program starts, the error that its ibv_open_device would have."""
    try:
        address = ipaddress.ip_address(device.where.partition("%")[0])
    except ValueError:
        address = None
    if address is None:
        _check_netdev(device)
    elif device.kind == "afxdp":
        raise LocalError(
            f"device {device.name}: an afxdp port is on a network device, not on {address}",
            hint="write afxdp:DEV, or udp:ADDRESS",
        )
    if device.kind == "afxdp":
        lacking = privileges.lack(f"device {device.name}", privileges.AF_XDP)
        if lacking is not None:
            raise CapabilityError(
                str(lacking),
                hint=f"{lacking.hint}; or use the udp port, which needs no privilege: "
                f"{device.name}=udp:{device.where}",
            )


def _check_names(devices: Sequence[DeviceSpec]) -> None:
    names = [device.name for device in devices]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise LocalError(
            f"two devices have the name {twice[0]}", hint="name each of them differently"
        )


def _check_series(series: str) -> None:
    """LocalError for what the front would refuse when the program has begun."""
    prefix, *settings = series.split(";")
    _check_prefix("--series", prefix)
    for word in filter(None, settings):
        key, _, value = word.partition("=")
        least, most = SERIES_LIMITS.get(key, (1, 0))
        number = int(value) if value.isascii() and value.isdecimal() else -1
        if not least <= number <= most:
            known = (f"{key}=N ({low} to {high})" for key, (low, high) in SERIES_LIMITS.items())
            raise LocalError(
                f"--series: {word!r} is no setting", hint=f"settings are {', '.join(known)}"
            )


def _check_prefix(option: str, prefix: str | Path) -> None:
    """LocalError when no file that begins so can be made."""
    folder = Path(prefix).absolute().parent
    if not os.access(folder, os.F_OK) or not folder.is_dir():
        raise LocalError(f"{option} {prefix}: there is no folder {folder}", hint="make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LocalError(f"{option} {prefix}: {folder} cannot be written", hint="choose another")


def _check_object(path: Path) -> None:
    """LocalError when DATAPATH_DEVICES cannot name a compiled algorithm, because of its folder."""
    try:
        DeviceSpec("dp0", "udp:lo", {"cc": str(path)}).check()
    except LocalError:
        raise LocalError(
            f"--cc: compiled algorithms lie in {path.parent}, and no device can name a file there: "
            "the path has a blank or a semicolon",
            hint="set XDG_CACHE_HOME to another folder",
        ) from None


def exec_program(
    program: Sequence[str],
    devices: Sequence[str],
    *,
    cc: str | None = None,
    cc_params: Mapping[str, float | int] | None = None,
    mode: str | None = None,
    stats: Path | None = None,
    series: str | None = None,
) -> NoReturn:
    """Become `program` (argv), with `devices` ("NAME=PORT[;key=value...]").

    cc: a registered algorithm or ./file.py:Class, compiled with cc_params.
    mode: auto or standard.  cc and mode hold for the devices that do not say
    otherwise.  stats: prefix of the counters' files, one for each device.
    series: prefix of the files of samples, with settings after semicolons.
    Raises LocalError or CapabilityError; does not return.
    """
    if not program:
        raise LocalError("no program to run", hint="write dpctl exec ... -- PROGRAM [args]")
    if not devices:
        raise LocalError("no device", hint="write --device dp0=afxdp:DEV")
    parsed = [DeviceSpec.parse(text) for text in devices]
    _check_names(parsed)
    for device in parsed:
        if mode is not None:
            device.options.setdefault("mode", mode)
        device.check()
        check_device(device)
    path = _check_program(program[0])
    if stats is not None:
        _check_prefix("--stats", stats)
    if series is not None:
        _check_series(series)
    if cc is not None:
        from datapath.cc import compile_algorithm

        compiled = compile_algorithm(cc, dict(cc_params or {}))
        _check_object(compiled.path)
        for device in parsed:
            device.options.setdefault("cc", str(compiled.path))
    given = {**_stack_settings(parsed, os.environ), **os.environ}
    environment = {**given, **_environment(parsed, os.environ)}
    if stats is not None:
        environment["DATAPATH_STATS"] = str(Path(stats).absolute())
    if series is not None:
        prefix, semicolon, settings = series.partition(";")
        environment["DATAPATH_SERIES"] = f"{Path(prefix).absolute()}{semicolon}{settings}"
    # The front that is asked where the devices are reads them from the environment.
    os.environ.update(environment)
    sysfs.show([device.name for device in parsed])
    os.execve(path, list(program), environment)
