# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Files brought to a host and fetched from it, in the folder of a connection.

FOLDER/files/<hash of the content>/<name>     a file, brought once
FOLDER/files/<hash of the links>/<name>       a folder, with links to its files
FOLDER/out/<number>/                          what programs write for one local folder
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

from datapath.errors import LocalError, RemoteError
from datapath.lanes.remote.connection import Connection
from datapath.names import plain_name

if TYPE_CHECKING:
    import asyncssh

_HASH_DIGITS = 16
_CHUNK_BYTES = 4 << 20
_WRITE_NO_LINK = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class RemoteFiles:
    """Files of one connection; safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[object, ...], str] = {}
        self._outputs: dict[Path, str] = {}
        self._lock = threading.Lock()

    def provide(self, path: Path) -> str:
        """Path on the host of a local file or folder of files; LocalError when there is none."""
        with self._lock:
            return self._provide(Path(path).absolute())

    def outputs(self, folder: Path) -> str:
        """A folder on the host for files that belong in a local folder."""
        local = folder.resolve()
        with self._lock:
            if local not in self._outputs:
                remote = f"{self._connection.folder}/out/{len(self._outputs)}"
                self._connection.call(self._make_folder(remote, 0o777))
                self._outputs[local] = remote
            return self._outputs[local]

    def fetch(self, folder: Path) -> None:
        """Move the files in outputs(folder) into the local folder."""
        remote = self._outputs.get(folder.resolve())
        if remote is not None:
            if self._connection.user != "root":
                self._connection.ask(f"own {remote}")  # sftp is not root
            self._connection.call(self._move(remote, folder))

    def _provide(self, path: Path) -> str:
        try:
            return self._provide_folder(path) if path.is_dir() else self._provide_file(path)
        except FileNotFoundError:
            raise LocalError(
                f"there is no file {path} to bring to {self._connection.name}"
            ) from None

    def _provide_file(self, path: Path) -> str:
        state = path.stat()
        key = (str(path), state.st_mtime_ns, state.st_size)
        if key not in self._known:
            content = path.read_bytes()
            folder = self._place(content)
            mode = 0o755 if state.st_mode & 0o100 else 0o644
            self._connection.call(self._write(folder, path.name, content, mode))
            self._known[key] = f"{folder}/{path.name}"
        return self._known[key]

    def _provide_folder(self, path: Path) -> str:
        links = {entry.name: self._provide(entry.resolve()) for entry in sorted(path.iterdir())}
        key = (str(path), *links.items())
        if key not in self._known:
            folder = f"{self._place(repr(key).encode())}/{path.name}"
            self._connection.call(self._link(folder, links))
            self._known[key] = folder
        return self._known[key]

    def _place(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]
        return f"{self._connection.folder}/files/{digest}"

    # --- in the loop's thread ---

    async def _write(self, folder: str, name: str, content: bytes, mode: int) -> None:
        sftp = await self._make_folder(folder)
        target = f"{folder}/{name}"
        if await sftp.exists(target):
            return
        async with sftp.open(f"{target}.part", "wb") as file:
            await file.write(content)
        await sftp.chmod(f"{target}.part", mode)
        await sftp.posix_rename(f"{target}.part", target)

    async def _link(self, folder: str, links: dict[str, str]) -> None:
        sftp = await self._make_folder(folder)
        for name, target in links.items():
            if not await sftp.exists(f"{folder}/{name}"):
                await sftp.symlink(target, f"{folder}/{name}")

    async def _make_folder(self, folder: str, mode: int = 0o755) -> asyncssh.SFTPClient:
        sftp = await self._connection.sftp()
        await sftp.makedirs(folder, exist_ok=True)
        await sftp.chmod(folder, mode)
        return sftp

    async def _move(self, remote: str, folder: Path) -> None:
        sftp = await self._connection.sftp()
        async for entry in sftp.scandir(remote):
            name = str(entry.filename)
            if name in (".", ".."):
                continue
            target = local_target(folder, name, self._connection.name)
            source, kind = posixpath.join(remote, name), entry.attrs.permissions or 0
            if stat.S_ISDIR(kind):
                target.mkdir(exist_ok=True)
                await self._move(source, target)
                await sftp.rmdir(source)
            elif stat.S_ISREG(kind):
                await self._copy(source, target)
                await sftp.remove(source)
            else:
                raise RemoteError(
                    f"{self._connection.name}: {source} is neither a file nor a folder",
                    hint="only files and folders are fetched; find out what made it there",
                )

    async def _copy(self, source: str, target: Path) -> None:
        """Not by SFTPClient.get(), which asks again what `source` is and makes links of links."""
        sftp = await self._connection.sftp()
        descriptor = os.open(target, _WRITE_NO_LINK, 0o666)
        with os.fdopen(descriptor, "wb") as local:
            async with sftp.open(source, "rb") as file:
                while data := await file.read(_CHUNK_BYTES):
                    local.write(cast(bytes, data))


def local_target(folder: Path, name: str, host: str) -> Path:
    """Where a file goes that `host` calls `name`; RemoteError unless that is in `folder`."""
    target = folder / plain_name(name, host)
    if target.is_symlink():
        raise LocalError(f"{target} is a link, so nothing is fetched to it", hint="remove the link")
    return target
