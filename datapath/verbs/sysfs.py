# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Our devices in sysfs and /dev, for programs that look for them there.

The kernel knows nothing of our devices, so /sys/class/infiniband does not have them, and
/dev/infiniband has no node of theirs.  show() gives this process a mount namespace of its own,
with file systems in memory over these folders (or over the folder above, where one is missing),
in which our devices stand beside real ones.  The program that this process becomes inherits
them, and the kernel takes them away with the last process that uses them, however that ends.

The files tell what was true when they were made; ibv_query_port() tells the present state.

`python -m datapath.verbs.sysfs PROGRAM [ARGUMENT]...` becomes the program, which gets what its
environment names (launch.py): for workloads, whose environment is made elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from datapath import __version__
from datapath.native import paths

CLASSES = Path("/sys/class")
DEVICES = CLASSES / "infiniband"
VERBS = CLASSES / "infiniband_verbs"
NODES = Path("/dev/infiniband")
OURS = "dpverbs-"
"""How the names of our devices under VERBS and NODES begin: devices.c."""

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 0x1, 0x20, 0x1000
_MS_NO_PROGRAMS = 0x2 | 0x4 | 0x8  # NOSUID, NODEV, NOEXEC
_MS_READ_ONLY = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NO_PROGRAMS
_MS_REC_BIND = 0x4000 | _MS_BIND
_MS_REC_SLAVE = 0x4000 | 0x80000
_MNT_DETACH = 2
_PKEY = 0xFFFF

_libc = ctypes.CDLL(None, use_errno=True)


class _Place(ctypes.Structure):
    """struct dpdv_place."""

    _fields_ = (
        ("netdev", ctypes.c_char * 16),
        ("ifindex", ctypes.c_uint32),
        ("up", ctypes.c_bool),
        ("gid", ctypes.c_uint64 * 2),
        ("gids", ctypes.c_uint32),
        ("guid", ctypes.c_uint64 * 1),
        ("rate_bps", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Place:
    """A device and where it is.

    name: "dp0".  gid: the port's address, at the first `gids` indices.  guid: 8 bytes.
    """

    name: str
    netdev: str
    up: bool
    gid: ipaddress.IPv6Address
    gids: int
    guid: bytes
    rate_bps: int


def find_place(device: str) -> Place | None:
    """Where the front puts a device of DATAPATH_DEVICES; None: its address is not there."""
    query = ctypes.CDLL(str(paths.verbs_library())).dpdv_query_place
    found = _Place()
    if query(device.encode(), ctypes.byref(found), ctypes.sizeof(found)):
        return None
    return Place(
        name=device,
        netdev=found.netdev.decode(),
        up=found.up,
        gid=ipaddress.IPv6Address(bytes(found.gid)),
        gids=found.gids,
        guid=bytes(found.guid),
        rate_bps=found.rate_bps,
    )


def device_files(place: Place) -> dict[str, str]:
    """The files of a device, as the kernel has them; names are relative to its folder.

    Source: Documentation/ABI/stable/sysfs-class-infiniband.
    """
    guid = _grouped(place.guid)
    files = {
        "node_type": "1: CA",
        "node_guid": guid,
        "sys_image_guid": guid,
        "node_desc": f"datapath {place.name}",
        "fw_ver": __version__,
        "hca_type": "datapath",
        "board_id": "datapath",
        "ports/1/state": "4: ACTIVE" if place.up else "1: DOWN",
        "ports/1/phys_state": "5: LinkUp" if place.up else "3: Disabled",
        "ports/1/rate": f"{place.rate_bps / 1e9:g} Gb/sec",
        "ports/1/link_layer": "Ethernet",
        "ports/1/lid": "0x0",
        "ports/1/lid_mask_count": "0",
        "ports/1/sm_lid": "0x0",
        "ports/1/sm_sl": "0",
        "ports/1/cap_mask": "0x04010000",
        "ports/1/pkeys/0": f"0x{_PKEY:04x}",
    }
    for index in range(place.gids):
        files[f"ports/1/gids/{index}"] = _grouped(place.gid.packed)
        files[f"ports/1/gid_attrs/types/{index}"] = "RoCE v2"
        files[f"ports/1/gid_attrs/ndevs/{index}"] = place.netdev
    return files


def _grouped(data: bytes) -> str:
    """Bytes as sysfs writes GUIDs and GIDs: four digits, a colon, and so on."""
    return data.hex(":", 2)


def show(devices: Sequence[str]) -> bool:
    """Put the devices of DATAPATH_DEVICES that have a place into this process's sysfs.

    False: this process may not (it takes CAP_SYS_ADMIN), or there is no sysfs; then nothing
    has changed for it.  The process has to be of one thread.
    """
    places = [place for place in map(find_place, devices) if place]
    if not places or not CLASSES.is_dir() or _libc.unshare(_CLONE_NEWNS):
        return False
    made: list[Path] = []
    try:
        _mount("none", Path("/"), "", _MS_REC_SLAVE)
        for folder in (DEVICES, VERBS, NODES):
            _cover(folder, made)
        for place in places:
            _write_device(place)
            _make_node(NODES / f"{OURS}{place.name}")
        for folder in made:
            if folder.is_relative_to(CLASSES):
                _mount("none", folder, "", _MS_READ_ONLY)
    except OSError:
        for folder in reversed(made):
            _libc.umount2(os.fsencode(folder), _MNT_DETACH)
        return False
    return True


def _write_device(place: Place) -> None:
    folder = DEVICES / place.name
    _write(folder, device_files(place))
    netdev = CLASSES / "net" / place.netdev
    with contextlib.suppress(OSError):
        # A real network card: its NUMA node and the like are those of our device, too.
        (folder / "device").symlink_to((netdev / "device").resolve(strict=True))
    if not (folder / "device").is_symlink():
        _write(folder / "device", {"numa_node": "-1"})
        (folder / "device" / "net").mkdir()
        (folder / "device" / "net" / place.netdev).symlink_to(netdev)
    verbs = VERBS / f"{OURS}{place.name}"
    _write(verbs, {"ibdev": place.name})
    (verbs / "device").symlink_to(folder / "device")


def _make_node(node: Path) -> None:
    """A character device that can be opened, as programs want to see; nothing is behind it."""
    node.touch()
    _mount(os.devnull, node, "", _MS_BIND)


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        path.chmod(0o444)


def _cover(folder: Path, made: list[Path]) -> None:
    """A writable folder in memory over `folder`, with the kernel's devices in it.

    Without such a folder, over its parent, since the folder would be there for all programs,
    and nobody can make one in sysfs.  made: where file systems were mounted; grows.
    """
    if folder.is_dir():
        with _covered(folder, made) as kernels:
            for entry in list(os.scandir(kernels)):
                # Folders, and nodes of this name: of a dpctl exec around this one.
                if not entry.is_dir(follow_symlinks=False) and not entry.name.startswith(OURS):
                    _keep(kernels, entry, folder / entry.name)
        return
    if folder.parent not in made:
        with _covered(folder.parent, made) as kernels:
            for entry in list(os.scandir(kernels)):
                _keep(kernels, entry, folder.parent / entry.name)
    folder.mkdir()


@contextlib.contextmanager
def _covered(folder: Path, made: list[Path]) -> Iterator[int]:
    """Mount a file system in memory; a descriptor of the folder that it covers."""
    kernels = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _mount("datapath", folder, "tmpfs", _MS_NO_PROGRAMS, "mode=755")
        made.append(folder)
        yield kernels
    finally:
        os.close(kernels)


def _keep(kernels: int, entry: os.DirEntry[str], to: Path) -> None:
    """The entry of a covered folder, with all that is mounted below it."""
    if entry.is_symlink():
        to.symlink_to(os.readlink(entry.name, dir_fd=kernels))
        return
    if entry.is_dir():
        to.mkdir()
    else:
        to.touch()
    _mount(f"/proc/self/fd/{kernels}/{entry.name}", to, "", _MS_REC_BIND)


def _mount(source: str, target: Path, kind: str, flags: int, data: str = "") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode())
    if _libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None):
        code = ctypes.get_errno()
        raise OSError(code, f"mount {kind or source} on {target}: {os.strerror(code)}")


def program(argv: Sequence[str]) -> list[str]:
    """The command line of `argv` with the devices of its environment in its sysfs."""
    return [sys.executable, "-m", "datapath.verbs.sysfs", *argv]


def main(argv: list[str]) -> None:
    devices = os.environ.get("DATAPATH_DEVICES", "").split()
    show([device.partition("=")[0] for device in devices])
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
