# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Bytecode during a selftest: kept, not in the tree, and not made anew for what is installed."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from datapath.cli.bytecode import bytecode_kept, link_bytecode


@pytest.mark.parametrize("forbidden", [True, False])
def test_bytecode_is_kept_but_not_in_the_tree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, forbidden: bool
) -> None:
    (tmp_path / "module.py").write_text("")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1" if forbidden else "")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    script = "import module, os; print(module.__cached__, os.path.exists(module.__cached__))"
    with bytecode_kept():
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
        )
    cached, kept = done.stdout.split()
    assert kept == "True"
    assert Path(cached).is_relative_to(tmp_path) is not forbidden
    assert os.environ["PYTHONDONTWRITEBYTECODE"] == ("1" if forbidden else "")
    assert "PYTHONPYCACHEPREFIX" not in os.environ


def test_installed_bytecode_is_used_and_never_changed(tmp_path: Path) -> None:
    """Old bytecode is replaced in the prefix, and stays where it was."""
    package = tmp_path / "place" / "package"
    package.mkdir(parents=True)
    compiled = {}
    for name in ("same", "changed"):
        source = package / f"{name}.py"
        source.write_text(f"value = '{name}'")
        compiled[name] = package / "__pycache__" / f"{name}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(str(source), str(compiled[name]), doraise=True)
    before = compiled["changed"].read_bytes()
    (package / "changed.py").write_text("value = 'another_one'")
    prefix = tmp_path / "prefix"
    link_bytecode([str(tmp_path / "place")], prefix)
    script = (
        "from package import changed, same\n"
        "print(changed.value, same.value, same.__cached__, changed.__cached__)"
    )
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(prefix)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path / "place",
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    changed, same, same_link, changed_file = done.stdout.split()
    assert (changed, same) == ("another_one", "same")
    assert Path(same_link).resolve() == compiled["same"]
    assert not Path(changed_file).is_symlink()
    assert Path(changed_file).is_relative_to(prefix)
    assert compiled["changed"].read_bytes() == before
