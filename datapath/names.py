# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names that came from outside, before they become part of a path.

A host reached by ssh, a guest or a worker of a cluster names the files that it sends.  Every
such name goes through `plain_name` or `plain_path`, so that no file lands outside the folder
that was meant for it.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from datapath.errors import RemoteError

_BYTES_MAX = 255
"""NAME_MAX of Linux: the longest component of a path."""


def plain_name(name: str, source: str) -> str:
    """The name itself, when it is one component of a path and can be printed.

    Raises:
        RemoteError: it is something else; the message tells that `source` sent it.
    """
    plain = (
        name not in ("", ".", "..")
        and "/" not in name
        and name.isprintable()
        and len(name.encode()) <= _BYTES_MAX
    )
    if not plain:
        raise RemoteError(
            f"{source} names a file {name!r}, which is not a plain file name",
            hint="nothing of that name was written; find out what on that host made it",
        )
    return name


def plain_path(path: str, source: str) -> PurePosixPath:
    """A relative path of plain names, as `a/b`; RemoteError as `plain_name`."""
    return PurePosixPath(*(plain_name(part, source) for part in path.split("/")))
