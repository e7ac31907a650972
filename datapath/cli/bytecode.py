# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Python's bytecode during a selftest, which starts thousands of processes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_CACHE = "__pycache__"


@contextmanager
def bytecode_kept() -> Iterator[None]:
    """Let Python keep its bytecode during the tests, also where the environment forbids it.

    Otherwise each process compiles all modules, and the tests with their rewritten assertions.
    """
    if not sys.dont_write_bytecode:
        yield
        return
    before = os.environ.pop("PYTHONDONTWRITEBYTECODE", "1")
    with tempfile.TemporaryDirectory(prefix="dpctl-selftest-") as folder:
        link_bytecode([place for place in sys.path if Path(place).is_dir()], Path(folder))
        os.environ["PYTHONPYCACHEPREFIX"] = folder  # nothing appears in the tree
        try:
            yield
        finally:
            del os.environ["PYTHONPYCACHEPREFIX"]
            os.environ["PYTHONDONTWRITEBYTECODE"] = before


def link_bytecode(places: Sequence[str], prefix: Path) -> None:
    """Link what is compiled already below some folders into a prefix of bytecode.

    With a prefix, Python looks nowhere else, and would compile all installed packages anew.  It
    replaces a link to old bytecode, and leaves alone what the link leads to.
    """
    for place in places:
        for folder, inner, _ in os.walk(place):
            if _CACHE not in inner:
                continue
            inner.remove(_CACHE)
            target = prefix / Path(folder).absolute().relative_to("/")
            target.mkdir(parents=True, exist_ok=True)
            for file in os.scandir(Path(folder).absolute() / _CACHE):
                link = target / file.name
                if not link.is_symlink():
                    link.symlink_to(file.path)
