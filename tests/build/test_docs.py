# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the pages say can be followed: links lead where they say, commands are those of dpctl."""

from __future__ import annotations

import functools
import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from datapath.cli.app import app
from datapath.cli.selftest import STAGES, choose_stages
from datapath.native import paths
from tests.conftest import certain_marks_of

pytestmark = pytest.mark.compute

PAGES = sorted(
    page
    for folder in (paths.ROOT, paths.ROOT / "docs")
    for page in (folder.glob("*.md") if folder == paths.ROOT else folder.rglob("*.md"))
)
FENCE = re.compile(r"^(```+)(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[((?:[^\]`]|`[^`]*`)*)\]\(<?([^)\s>]+)>?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
INLINE = re.compile(r"`((?:\./)?dpctl [^`]*)`")
ENDS = {"|", "&&", "||", ";", ">", ">>", "2>", "<", "&"}


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(paths.ROOT)) for page in pages]


def anchors(text: str) -> set[str]:
    """What `#` may name in a page: its headings, as GitHub spells them."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = html.unescape(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        if count:
            found[f"{slug}-{count}"] = 1
    return set(found)


def dead_links(page: Path) -> Iterator[str]:
    text = re.sub(r"`[^`\n]*`", "``", FENCE.sub("", page.read_text()))
    for label, target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        if re.fullmatch(r"\S+\.md", label) and Path(label).name != Path(name or page).name:
            yield f"{target}: not {label}"
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, `code` and [a link](x)\n## Twice\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[1](other.md) [2](none.md) [3](other.md#a-heading-code-and-a-link) [`4`](other.md#b)\n"
        "[5](other.md#twice-1) [6](other.md#twice-2) [7](https://example.org/none) `[8](none)`\n"
        "```\n[9](none)\n```\n[docs/other.md](other.md) [none.md](other.md#twice)\n"
    )
    assert [text.partition(":")[0] for text in dead_links(page)] == [
        "none.md",
        "other.md#b",
        "other.md#twice-2",
        "other.md#twice",
    ]


def commands(page: Path) -> Iterator[str]:
    """Command lines of dpctl in code blocks."""
    text = page.read_text()
    for _, language, block in FENCE.findall(text):
        if language not in ("console", "sh", "bash", "shell", ""):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            # After an assignment of the environment, too.
            match = re.match(r"\s*(?:\$ )?(?:\w+=\S+ )*((?:\./)?dpctl .*)", line)
            if match:
                yield match[1]


def mentions(page: Path) -> Iterator[str]:
    """Commands in code between words, which may leave out what an option takes."""
    yield from INLINE.findall(FENCE.sub("", page.read_text()))


def words_of(line: str) -> list[str]:
    """The arguments, up to a comment, a pipe or the next command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[str] = []
    for word in lexer:
        if word in ENDS or word.startswith("#"):
            break
        found.append(word)
    return found[1:]


@functools.cache
def dpctl() -> Any:
    return typer.main.get_command(app)


def refused(words: list[str]) -> str:
    """What dpctl has against a command line before it looks at values; "": nothing."""
    command: Any = dpctl()
    parent, name = None, "dpctl"
    while True:
        context = command.context_class(
            command, info_name=name, parent=parent, **command.context_settings
        )
        try:
            _, words, _ = command.make_parser(context).parse_args(words)
        except Exception as error:
            return str(getattr(error, "message", error)) or type(error).__name__
        if not hasattr(command, "commands") or not words or not words[0].isidentifier():
            return ""
        parent, (name, *words) = context, words
        if name.isupper() or name not in command.commands:
            return "" if name.isupper() else f"no such command: {name}"
        command = command.commands[name]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_are_those_of_dpctl(page: Path) -> None:
    wrong = [(line, why) for line in commands(page) if (why := refused(words_of(line)))]
    for line in mentions(page):
        why = refused(words_of(line))
        if why and not why.endswith("requires an argument."):
            wrong.append((line, why))
    assert wrong == []


def test_the_tests_that_pages_name_run() -> None:
    """In one of the stages that `dpctl selftest` chooses for the words of the page."""
    lines = [words_of(line) for page in PAGES for line in commands(page)]
    asked = [words[1:] for words in lines if words[:1] == ["selftest"]]
    named = 0
    for words in asked:
        stages, left = choose_stages(words)
        for file in (paths.ROOT / word.partition("::")[0] for word in left if "/" in word):
            assert file.exists(), words
            own = certain_marks_of(file) & set(STAGES) if file.is_file() else set()
            assert own <= set(stages), words
            named += 1
    assert named > 2


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("dpctl run my.yaml --repetitions 3 --out /tmp/try", True),
        ("./dpctl cc check NAME   # a comment --with=options", True),
        ("dpctl exec --device 'dp0=udp:127.0.0.1;ecn=1' -- prog --any -x", True),
        ("dpctl list | head --lines", True),
        ("dpctl --version", True),
        ("dpctl runs my.yaml", False),
        ("dpctl cc chek NAME", False),
        ("dpctl run my.yaml --no-such-option", False),
        ("dpctl run --out", False),
    ],
)
def test_a_wrong_command_is_found(line: str, fine: bool) -> None:
    assert (refused(words_of(line)) == "") == fine


def test_there_are_commands_to_check() -> None:
    counts = {page: len(list(commands(page))) for page in PAGES}
    assert counts[paths.ROOT / "docs" / "programs.md"] > 2
    assert sum(counts.values()) > 80
