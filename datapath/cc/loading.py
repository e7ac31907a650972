# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Finding an algorithm: by registered name, or in a file of the user's own."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import pkgutil
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from datapath import foreign
from datapath.cc.algorithm import Algorithm, Collector, registered
from datapath.cc.source import RAISED, display, is_neighbour, located, reason
from datapath.cc.subset import analyse
from datapath.errors import LocalError
from datapath.spelling import did_you_mean

_loading = threading.RLock()  # a file is run with sys.path and the registry changed
_PATH = re.compile(r"(?P<path>.+\.py)(:(?P<class_name>\w*))?")


def registry() -> Mapping[str, Algorithm]:
    """Algorithms by name: those of the toolkit and those of imported modules."""
    from datapath.cc import algorithms

    for module in pkgutil.iter_modules(algorithms.__path__):
        importlib.import_module(f"{algorithms.__name__}.{module.name}")
    return dict(sorted(registered.items()))


def file_of(name_or_path: str) -> str | None:
    """The file, as it is written, of what load() takes; None for a registered name."""
    match = _PATH.fullmatch(name_or_path)
    return match["path"] if match else None


def load(name_or_path: str) -> Algorithm:
    """Find an algorithm; one of the user's own is checked, and not yet compiled.

    Args:
        name_or_path: a registered name, `./file.py:Class`, or `./file.py` when
            the file holds one algorithm.

    Raises:
        LocalError: no such name, file or class; or the file is wrong (also what its
            functions do, see `subset`), with its line.
    """
    match = _PATH.fullmatch(name_or_path)
    if match:
        path = Path(match["path"])
        found = _pick(_load_file(path), path, match["class_name"] or "")
        analyse(found)
        return found
    known = registry()
    if name_or_path not in known:
        from datapath.cc import bpf

        if name_or_path in (item.name for item in bpf.own()):
            raise LocalError(
                f"{name_or_path} is C for the kernel's TCP",
                hint=f"in an experiment it is cc: {{tcp: {name_or_path}}}",
            )
        raise LocalError(
            f"no congestion-control algorithm is called {name_or_path!r}",
            hint=did_you_mean(name_or_path, sorted(known), "there are")
            + " (your own is named as ./my_cc.py:MyCC)",
        )
    return known[name_or_path]


def _pick(found: list[Algorithm], path: Path, class_name: str) -> Algorithm:
    names = [item.class_name for item in found]
    if not found:
        raise LocalError(
            f"{path} holds no algorithm", hint='put @algorithm("name") before its class'
        )
    if class_name:
        for item in found:
            if item.class_name == class_name:
                return item
        raise LocalError(
            f"{path} holds no algorithm class {class_name}",
            hint=did_you_mean(class_name, sorted(names), "there are"),
        )
    if len(found) > 1:
        raise LocalError(
            f"{path} holds several algorithms: {', '.join(names)}",
            hint=f"say which: {path}:{names[0]}",
        )
    return found[0]


def _load_file(path: Path) -> list[Algorithm]:
    """Run a file of the user's own and return the algorithms that it declares."""
    file = name_in_python(path)
    with _loading, Collector(file) as collector:
        try:
            run_file(path, "datapath_cc")
        except LocalError:
            raise
        except SyntaxError as error:
            where = error.filename or file
            raise located(where, error.lineno or 1, f"not Python: {error.msg}") from None
        except RAISED as error:
            raise _running(error, file) from error
    return collector.found


def name_in_python(path: Path) -> str:
    """The name that a file of the user's own has for Python, as in tracebacks."""
    return str(foreign.expanded(path).resolve())


def run_file(path: Path, prefix: str) -> ModuleType:
    """Run a file of the user's own as a module, which may import its neighbours.

    What the file raises is raised.  LocalError: it is not there, or no text.
    """
    file = name_in_python(path)
    try:
        text = importlib.util.decode_source(foreign.read_bytes(Path(file)))
    except OSError as error:
        reason = error.strerror or str(error)
        raise LocalError(f"cannot read {path}: {reason}") from None
    except foreign.Refused:
        raise
    except (SyntaxError, UnicodeDecodeError) as error:
        raise LocalError(f"{path} is not Python text: {error}") from None
    module = ModuleType(f"{prefix}_{Path(file).stem}")
    module.__file__ = file
    linecache.checkcache(file)
    with _loading, _importable(module, Path(file).parent):
        exec(compile(text, file, "exec", dont_inherit=True), vars(module))
    return module


def _running(error: BaseException, file: str) -> LocalError:
    """Name the line of the user's file at which running it failed."""
    frames = [item for item in traceback.extract_tb(error.__traceback__) if item.filename == file]
    line = (frames[-1].lineno if frames else None) or 1
    return located(file, line, reason(error), hint=f"{display(file)} must be importable")


@contextmanager
def _importable(module: ModuleType, folder: Path) -> Iterator[None]:
    """Let a file import its neighbours, without leaving them to the next file.

    Two folders may each hold a `helpers.py`, so what was imported from this one
    is forgotten again.  (Packages below the folder stay: that may be anything.)
    """
    before = set(sys.modules)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin and is_neighbour(origin, folder):
                del sys.modules[name]
        sys.modules.pop(module.__name__, None)
