# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether `dpctl run --resume` may run the code that a result folder names without a question.

A folder may come from another user, and its experiment may name a Python file, which is run as
soon as the experiment is read.  So the manifest has a seal: a keyed digest (HMAC) of the
experiment, of where it came from and of the code that it names, with a key of this user on this
machine.  A folder was begun here if its seal holds and its files are unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datapath import cachedir, foreign
from datapath.errors import DatapathError, LocalError
from datapath.experiment.document import parse
from datapath.experiment.load import LoadedExperiment, load_text, read_experiment

_KEY_BYTES = 32
_CODE = re.compile(r"(?P<file>.+\.(py|bpf\.c))(:\w*)?")
"""Names that datapath.cc takes for a file to run."""
_RUNS = ("source", "ssh_config", "ssh", "extra")
"""Keys of an experiment that name C to load, a configuration with commands, a machine, options."""


@dataclass(frozen=True)
class Begun:
    """How a result folder was begun: the experiment as its manifest has it.

    file: the folder's copy of the experiment, with that text.  source: the original, beside which
    file names begin.
    """

    file: Path
    text: str
    source: Path
    overrides: tuple[str, ...]
    seal: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path, manifest: Mapping[str, Any]) -> Begun:
        """LocalError when the manifest does not tell, or the folder's copy is damaged."""
        source, overrides = manifest.get("source"), manifest.get("overrides")
        seal = manifest.get("seal")
        if not isinstance(source, str) or not isinstance(overrides, list):
            raise LocalError(
                f"{folder}/manifest.json does not tell what was run", hint="start a new run"
            )
        file, words = folder / "experiment.yaml", tuple(map(str, overrides))
        with _advised(file, source):
            text = read_experiment(file)
            parse(text, str(file))
        return cls(file, text, Path(source), words, seal if isinstance(seal, dict) else {})

    def load(self) -> LoadedExperiment:
        """The experiment; LocalError, which names the folder's copy, for a mistake in it."""
        with _advised(self.file, str(self.source)):
            return load_text(self.text, self.source, self.overrides, file=self.file)


@contextlib.contextmanager
def _advised(file: Path, source: str) -> Iterator[None]:
    """Say of an error in a folder's copy of an experiment what to do."""
    try:
        yield
    except LocalError as error:
        error.hint = (
            f"it was valid when the folder was begun, from {source}: copy that over {file} if it "
            "is as it was then, or start a new run"
        )
        raise


def seal(experiment: LoadedExperiment) -> dict[str, Any]:
    """For the manifest; {} when there is no place for the key, and resuming then asks."""
    files = {str(file): _digest(file) for file in _code(experiment)}
    try:
        key = _key()
    except (OSError, DatapathError):
        return {}
    source = experiment.source.resolve()
    return {
        "files": files,
        "hmac": _hmac(key, experiment.text, source, experiment.overrides, files),
    }


def doubts(begun: Begun) -> tuple[str, list[str]]:
    """(why a question is due, what would be run); ("", []) when none is."""
    if not _holds(begun):
        return "was not begun by this user on this machine", _named(begun)
    changed = [name for name, was in begun.seal["files"].items() if _digest(Path(name)) != was]
    return ("names files that have changed since it was begun", changed) if changed else ("", [])


def _code(experiment: LoadedExperiment) -> Iterator[Path]:
    """Files of the experiment that are run or loaded, in a fixed order."""
    names: set[str] = set()
    for point in experiment.points:
        spec = point.spec
        named = (
            *spec.code.values(),
            spec.cc.tcp_file,
            spec.xdp.source if spec.xdp else None,
            spec.topology.ssh_config,
        )
        names |= {name for name in named if name is not None}
    for name in sorted(names):
        yield foreign.beside(experiment.folder, name).resolve()


def _holds(begun: Begun) -> bool:
    files, mark = begun.seal.get("files"), begun.seal.get("hmac")
    if not isinstance(files, dict) or not isinstance(mark, str):
        return False
    try:
        wanted = _hmac(_key(), begun.text, begun.source, begun.overrides, files)
    except (OSError, DatapathError):
        return False
    return hmac.compare_digest(wanted.encode(), mark.encode("utf-8", "replace"))


def _named(begun: Begun) -> list[str]:
    """All that an experiment names to be run; it is not read as an experiment, which runs code."""
    found = list(_values((), parse(begun.text, str(begun.file)).data))
    for override in begun.overrides:
        path, _, value = override.partition("=")
        found += _values((path,), parse(f"value: {value}", "--set").data["value"])
    named = []
    for keys, value in found:
        python = _CODE.fullmatch(value)
        if python or any(part in _RUNS for key in keys for part in key.split(".")):
            file = python["file"] if python else value
            here = foreign.beside(begun.source.parent, file)
            there = foreign.is_file(here)
            named.append(str(here.resolve()) if there else f"{'.'.join(keys)}: {value}")
    return sorted(set(named))


def _values(keys: tuple[str, ...], data: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """All texts of plain data, each with the keys on the way to it."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _values((*keys, str(key)), value)
    elif isinstance(data, Sequence) and not isinstance(data, str):
        for value in data:
            yield from _values(keys, value)
    elif isinstance(data, str):
        yield keys, data


def _digest(file: Path) -> str:
    """ "" for a missing file."""
    try:
        return hashlib.sha256(foreign.read_bytes(file)).hexdigest()
    except (OSError, ValueError):
        return ""


def _hmac(
    key: bytes, text: str, source: Path, overrides: Sequence[str], files: Mapping[str, str]
) -> str:
    about = json.dumps([text, str(source), list(overrides), files], sort_keys=True)
    return hmac.new(key, about.encode(), hashlib.sha256).hexdigest()


def _key() -> bytes:
    """This user's key on this machine; made when there is none."""
    folder = cachedir.make(cachedir.root())
    path = folder / "seal.key"
    if not path.exists():
        handle, name = tempfile.mkstemp(dir=folder, prefix=".seal.")
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            path.hardlink_to(name)
        except FileExistsError:  # another process was first
            pass
        finally:
            Path(name).unlink()
    cachedir.check(path)
    return path.read_bytes()
