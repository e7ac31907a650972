# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The README and the pages are true: commands, examples, tables and links."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from datapath.cc import compile_algorithm
from datapath.cli.app import app
from datapath.experiment import load as experiment
from datapath.link.impairments import IMPAIRMENTS
from datapath.native.paths import ROOT
from datapath.verbs.device_keys import DEVICE_KEYS
from tests.cli.server import dpctl
from tests.cli.told import told

README = ROOT / "README.md"
PROGRAMS = ROOT / "docs" / "programs.md"
ALGORITHMS = ROOT / "docs" / "algorithms.md"
EXPERIMENTS = ROOT / "docs" / "experiments.md"
VERBS = ROOT / "docs" / "verbs.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = ("datapath", "docs", "experiments", "setup", "tests", "tools")
FILES = [f"/{path}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
DPCTL = re.compile(r"(?:\./)?dpctl")

DPCTL_ARGV = [sys.executable, "-P", "-m", "datapath.cli"]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def dpctl_lines(page: Path) -> Iterator[list[str]]:
    """Arguments of each dpctl command in a block of commands."""
    for line in "".join(blocks(page, "console")).splitlines():
        words = shlex.split(line, comments=True)
        if words and DPCTL.fullmatch(words[0]):
            yield words[1:]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The algorithm of the page, as the file that the other examples name."""
    (code,) = blocks(ALGORITHMS, "python")
    path = tmp_path / "my_cc.py"
    path.write_text(code)
    return path


@pages
def test_commands_are_taken(page: Path) -> None:
    """Every dpctl command parses: the subcommand exists, and so do its options."""
    for words in dpctl_lines(page):
        command, context = typer.main.get_command(app), None
        while isinstance(command, TyperGroup):
            context = command.make_context("dpctl", words[:1], parent=context)
            _, chosen, words = command.resolve_command(context, words)
            assert chosen is not None
            command = chosen
        command.make_context("dpctl", words, parent=context)


@pages
def test_commands_named_in_passing_exist(page: Path) -> None:
    dpctl = typer.main.get_command(app)
    assert isinstance(dpctl, TyperGroup)
    known = set(dpctl.commands)
    assert set(re.findall(r"`(?:\./)?dpctl (\w+)", without_blocks(page))) <= known


@pages
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"(?<!!)\[[^]]*\]\(([^)#\s]+)", without_blocks(page))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pages
def test_files_that_are_named_exist(page: Path) -> None:
    """A path in backticks ends the path of a file in the tree; the kernel's begin with drivers."""
    named = re.findall(r"`((?:[\w-]+/)+[\w.-]+\.(?:[ch]|py|sh|txt|yaml))`", page.read_text())
    ours = [name for name in named if not name.startswith(("results/", "drivers/"))]
    assert [name for name in ours if not any(path.endswith(f"/{name}") for path in FILES)] == []


def test_pictures_are_there() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README.read_text())
    assert pictures
    assert [picture for picture in pictures if not (ROOT / picture).is_file()] == []


@pytest.mark.parametrize("way", ["exec", "import"])
def test_the_verbs_program_runs(way: str, tmp_path: Path) -> None:
    (code,) = blocks(PROGRAMS, "python")
    (words,) = (words for words in dpctl_lines(PROGRAMS) if "write.py" in words)
    (tmp_path / "write.py").write_text(code if way == "exec" else f"import datapath.verbs\n{code}")
    device = words[words.index("--device") + 1]
    command = {"exec": [*DPCTL_ARGV, *words], "import": [sys.executable, "write.py"]}[way]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=dict(os.environ) if way == "exec" else {**os.environ, "DATAPATH_DEVICES": device},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"`{done.stdout.strip()}`" in PROGRAMS.read_text(), done.stderr
    assert "hello" in done.stdout


def test_the_algorithm_is_that_of_the_guide_and_compiles(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(example.parent / "cache"))
    assert example.read_text() == blocks(ROOT / "docs" / "cc.md", "python")[0]
    (arguments,) = (words for words in dpctl_lines(ALGORITHMS) if "-p" in words)
    name, value = arguments[arguments.index("-p") + 1].split("=")
    assert compile_algorithm(str(example), {name: int(value)}).path.is_file()


def test_the_experiment_is_valid(example: Path) -> None:
    (text,) = blocks(EXPERIMENTS, "yaml")
    path = example.with_name("window.yaml")
    path.write_text(text)
    loaded = experiment.load(path)
    assert len(loaded.points) == 9
    assert len(loaded.spec.report.expect) == 1


def test_the_algorithm_runs_in_a_namespace_and_in_the_simulator(example: Path) -> None:
    (text,) = blocks(ALGORITHMS, "yaml")
    path = example.with_name("compare.yaml")
    path.write_text(text)
    out = example.with_name("out")
    done = dpctl("run", str(path), "--repetitions", "1", "--out", str(out), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert told("run", done.stdout)["runs"] == 4
    assert len(list((out / "series").iterdir())) == 4


def test_the_algorithm_runs_inside_perftest(example: Path) -> None:
    """As the command of the page, but both ends on one address of this machine."""
    (arguments,) = (words for words in dpctl_lines(ALGORITHMS) if "-p" in words)
    option = arguments[arguments.index("-p") + 1]
    command = ["exec", "--device", "dp0=udp:127.0.0.1", "--cc", str(example), "-p", option, "--"]
    program = ["ib_write_bw", "-d", "dp0", "-F", "-n", "200", "-p", "18599"]
    with subprocess.Popen([*DPCTL_ARGV, *command, *program], stdout=subprocess.DEVNULL) as server:
        try:
            done = dpctl(*command, *program, "127.0.0.1")
            while "Couldn't connect" in done.stderr and server.poll() is None:
                done = dpctl(*command, *program, "127.0.0.1")
        finally:
            server.kill()
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ *65536 +200 +[\d.]+ +[\d.]+", done.stdout, re.MULTILINE), done.stdout


def test_device_keys() -> None:
    section = VERBS.read_text().split("## Device keys")[1].split("##")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(DEVICE_KEYS)


def test_impairments() -> None:
    section = (ROOT / "docs/fabric.md").read_text().split("### Impairments of one number")[1]
    named = re.findall(r"^\| `(\w+)` \|", section.split("\n#")[0], re.MULTILINE)
    assert named == list(IMPAIRMENTS)


def test_make_targets() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", (ROOT / "CONTRIBUTING.md").read_text(), re.M)) <= targets


def test_the_list_of_pages_names_every_page() -> None:
    folder = ROOT / "docs"
    text = (folder / "README.md").read_text()
    pages = {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"]({name}" in text} == pages


def test_the_readme_has_two_screens() -> None:
    """Of a browser: 100 lines of 100 columns, with a picture of 25."""
    text = re.sub(r"\]\([^)]*\)", "]", README.read_text())
    lines = [line for paragraph in text.splitlines() for line in textwrap.wrap(paragraph, 100)]
    assert len(lines) + text.count("\n\n") + 25 * text.count("![") <= 100
