# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where things stand in the user's files: text, syntax trees, located errors."""

from __future__ import annotations

import ast
import contextlib
import linecache
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import FunctionType

from datapath.errors import LocalError

RAISED = (Exception, SystemExit)
"""What is caught of code of the user's own: a sys.exit() in it must not end dpctl as a success."""


def reason(error: BaseException) -> str:
    """What code of the user's own raised, such as "SystemExit: 3"."""
    text = f": {error}" if str(error) else ""
    return f"{type(error).__name__}{text}"


def located(file: str, line: int, message: str, *, hint: str = "") -> LocalError:
    """An error of the caller that begins with `file:line:`, as compilers do."""
    return LocalError(f"{display(file)}:{line}: {message}", hint=hint)


def display(file: str) -> str:
    """The path of a file as people would type it here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def is_neighbour(file: str, folder: Path) -> bool:
    """Whether a file lies in the folder (resolved) of the user's file that imports it."""
    return Path(file).resolve().parent == folder


def text_of(file: str) -> str:
    """The text of a source file (or of a notebook's cell), "" when there is none."""
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


@lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


def tree_of(file: str) -> ast.Module:
    """The syntax tree of a source file."""
    return _parse(text_of(file))


def neighbours(path: Path) -> list[Path]:
    """The modules beside a file that it imports by name, and those that these import."""
    found = [path]
    for file in found:  # which grows
        beside = (path.with_name(f"{name}.py") for name in _imported(str(file)))
        found += [each for each in dict.fromkeys(beside) if each not in found and each.is_file()]
    return found[1:]


def _imported(file: str) -> Iterator[str]:
    """The first words of the modules that a source file names; none if it is not Python."""
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def class_lines(file: str, class_name: str) -> dict[str, int]:
    """Lines of a class (under "") and of its members, by name."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return {"": node.lineno, **dict(_members(node))}
    return {}


def _members(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for item in node.body:
        if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
            yield item.name, item.lineno
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id, item.lineno
        elif isinstance(item, ast.Assign):
            for target in item.targets:
                if isinstance(target, ast.Name):
                    yield target.id, item.lineno


def function_node(function: FunctionType) -> ast.FunctionDef:
    """The syntax tree of a function.

    Raises:
        LocalError: there is no source, or the function is a lambda.
    """
    code = function.__code__
    for node in ast.walk(tree_of(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    if code.co_name == "<lambda>":
        raise located(
            code.co_filename, code.co_firstlineno, "a helper cannot be a lambda", hint="use def"
        )
    raise located(
        code.co_filename,
        code.co_firstlineno,
        f"the source of {code.co_name} cannot be read",
        hint="put the algorithm into a file",
    )
