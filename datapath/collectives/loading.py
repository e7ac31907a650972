# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Finding an algorithm: by registered name, or in a file of the user's own."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path

from datapath import foreign
from datapath.cc.loading import name_in_python, run_file
from datapath.cc.source import RAISED
from datapath.collectives.trace import Algorithm, crashed, registered
from datapath.errors import LocalError
from datapath.spelling import did_you_mean

_PATH = re.compile(r"(?P<path>.+\.py)(:(?P<function>\w*))?")


def registry() -> Mapping[str, Algorithm]:
    """The algorithms of the toolkit, by name."""
    from datapath.collectives import algorithms

    prefix = f"{algorithms.__name__}."
    for module in pkgutil.iter_modules(algorithms.__path__):
        importlib.import_module(prefix + module.name)
    own = {n: a for n, a in registered.items() if a.function.__module__.startswith(prefix)}
    return dict(sorted(own.items()))


def file_of(name: str) -> str | None:
    """The file, as it is written, of what load() takes; None for a name of the toolkit's."""
    match = _PATH.fullmatch(name)
    return match["path"] if match else None


def load(name: str, folder: Path | None = None) -> Algorithm:
    """An algorithm by its name, ./file.py or ./file.py:function; folder: where files are.

    LocalError when there is none, or the file does not run.
    """
    match = _PATH.fullmatch(name)
    if match is None:
        known = registry()
        if name not in known:
            raise LocalError(
                f"no collective algorithm is called {name!r}",
                hint=did_you_mean(name, sorted(known), "there are"),
            )
        return known[name]
    path = foreign.beside(folder or Path(), match["path"])
    found = _of_file(path)
    wanted = match["function"]
    if wanted:
        found = [one for one in found if one.function.__name__ == wanted]
    if len(found) != 1:
        what = f"no algorithm {wanted}" if wanted else f"{len(found)} algorithms"
        raise LocalError(f"{path}: it has {what}", hint=f"name one: {match['path']}:FUNCTION")
    return found[0]


def _of_file(path: Path) -> list[Algorithm]:
    """The algorithms that a file declares."""
    file = name_in_python(path)
    registry()  # all of the toolkit's, since what the file adds is taken out again
    before = dict(registered)
    try:
        module = run_file(path, "collective")
    except LocalError:
        raise
    except RAISED as error:
        raise crashed(error, file) from error
    finally:
        registered.clear()
        registered.update(before)
    return [value for value in vars(module).values() if isinstance(value, Algorithm)]
