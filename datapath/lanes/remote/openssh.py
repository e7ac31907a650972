# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The user's ssh configuration, as OpenSSH itself reads it: host keys and keys to log in with.

asyncssh reads the configuration too, but differs: it fails when a file of known hosts or of a key
does not exist, checks no key at all with `UserKnownHostsFile none`, and has no
StrictHostKeyChecking.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datapath.errors import LocalError
from datapath.lanes.remote.connection import import_asyncssh

if TYPE_CHECKING:
    import asyncssh

_TIMEOUT_S = 10
_FILES = ("userknownhostsfile", "globalknownhostsfile")
_SSH_PORT = 22

Settings = Mapping[str, Sequence[str]]
"""What `ssh -G` says, by key in lower case; some keys have several values."""


def settings(host: str, config: Path | None) -> Settings | None:
    """The settings for a host; None without OpenSSH."""
    words = ["ssh", *(["-F", str(config)] if config else []), "-G", "--", host]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


def setting(known: Settings, key: str) -> str:
    """The one value of a key; "" when it has none, or is switched off by `none`."""
    value = known.get(key, [""])[0]
    return "" if value == "none" else value


def checks_host_keys(known: Settings) -> bool:
    """Whether an unknown host key is refused."""
    return setting(known, "stricthostkeychecking") not in ("no", "off", "false")


def identity_files(known: Settings) -> list[str] | None:
    """Those that exist, if others do not; None: leave them to asyncssh.

    `ssh -G` tells them as they are written, and asyncssh knows what `%d` and the like stand for.
    """
    named = known.get("identityfile", [])
    if any("%" in name or "$" in name for name in named):
        return None
    there = [str(path) for name in named if (path := Path(name).expanduser()).is_file()]
    return there if len(there) < len(named) else None


def elsewhere_known(known: Settings, host: str, address: str, port: int) -> tuple[str, Path] | None:
    """A name under which a file of known hosts has a key of the host, and that file.

    For a host whose key is not among the known ones: it has changed, or another host answers.
    """
    names = dict.fromkeys(name for name in (host, address) if name)
    for path in _files(known):
        with contextlib.suppress(OSError, ValueError):
            text = path.read_text(encoding="utf-8", errors="replace")
            found = import_asyncssh().import_known_hosts(text)
            for name in names:
                written = name if port == _SSH_PORT else f"[{name}]:{port}"
                if found.match(written, "", None)[0]:
                    return written, path
    return None


def known_hosts(known: Settings) -> asyncssh.SSHKnownHosts:
    """All known hosts; a file that does not exist is an empty one.

    Raises:
        LocalError: a file of known hosts is damaged.
    """
    found: asyncssh.SSHKnownHosts = import_asyncssh().import_known_hosts("")
    for path in _files(known):
        try:
            found.load(path.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise LocalError(
                f"known hosts in {path}: {error.strerror}", hint="let this user read it"
            ) from None
        except ValueError as error:
            raise LocalError(
                f"known hosts in {path}: {error}", hint="correct that line, or remove it"
            ) from None
    return found


def _files(known: Settings) -> Iterator[Path]:
    """ssh -G separates names by spaces, and does not quote those that have some."""
    for key in _FILES:
        text = setting(known, key)
        names = [text] if Path(text).is_file() else text.split()
        yield from (Path(name) for name in names if name != "none")
