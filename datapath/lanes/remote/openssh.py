# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The host keys of the user's ssh configuration, as OpenSSH itself reads it.

asyncssh reads the configuration too, but differs: it fails when a file of known hosts does not
exist, checks no key at all with `UserKnownHostsFile none`, and has no StrictHostKeyChecking.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from datapath.errors import LocalError
from datapath.lanes.remote.connection import import_asyncssh

if TYPE_CHECKING:
    import asyncssh

_TIMEOUT_S = 10
_FILES = ("userknownhostsfile", "globalknownhostsfile")


def settings(host: str, config: Path | None) -> dict[str, str] | None:
    """The output of `ssh -G` for a host, by key in lower case; None without OpenSSH."""
    words = ["ssh", *(["-F", str(config)] if config else []), "-G", "--", host]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def checks_host_keys(known: Mapping[str, str]) -> bool:
    """Whether an unknown host key is refused."""
    return known.get("stricthostkeychecking") not in ("no", "off", "false")


def known_hosts(known: Mapping[str, str]) -> asyncssh.SSHKnownHosts:
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


def _files(known: Mapping[str, str]) -> Iterator[Path]:
    """ssh -G separates names by spaces, and does not quote those that have some."""
    for key in _FILES:
        text = known.get(key, "none")
        names = [text] if Path(text).is_file() else text.split()
        yield from (Path(name) for name in names if name != "none")
