# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One experiment with two revisions of this source tree, their runs taken in turn.

Each revision has a clone in the cache folder, with a set-up and builds of its own; "." is this
tree as it is.  The newest few clones stay for the next comparison.  A block is one repetition of
the experiment with either, in an order that alternates (A B, B A, ...), with a seed of its own that
both share.  So what changes on the machine while the blocks are made touches both alike, and the
two runs of a block can be paired.

The folder of a comparison has compare.json, which is written first: revisions (as the user named
them, with their commits) and blocks (how many are to be made).  Beside it lie the result folders
A-0, B-0, B-1, A-1 and so on, and their logs.  A comparison that ended early has fewer of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from datapath import cachedir, foreign
from datapath.debian import install_hint
from datapath.disk import disk_errors, write_atomic
from datapath.errors import CapabilityError, LocalError, RunFailed, ending
from datapath.experiment.load import LoadedExperiment
from datapath.experiment.store import to_json
from datapath.native import paths

_GIT = ["git", "-C", str(paths.ROOT)]
KEPT = 4
"""Clones that stay in the cache, the last used ones."""
_MEASURED = (0, 1)
"""Exit codes of a `dpctl run` that has measured: all well, or a claim or run has failed."""
ABOUT = "compare.json"
"""The file by which the folder of a comparison is known."""


@dataclass(frozen=True)
class Revision:
    """A revision as the user names it, its commit ("": this tree as it is), and its tree."""

    name: str
    commit: str
    tree: Path

    @property
    def label(self) -> str:
        return f"{self.name} ({self.commit[:12] or 'the tree as it is'})"


@dataclass(frozen=True)
class Comparison:
    """What a folder of a comparison has.

    pairs: both result folders of each block that is complete.  planned: blocks to be made.
    """

    names: list[str]
    planned: int
    pairs: list[tuple[Path, Path]]


def find(name: str) -> Revision:
    """The revision of this name; LocalError when git knows none."""
    if name == ".":
        return Revision(name, "", paths.ROOT)
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if not commit:
        raise LocalError(
            f"{name} is neither a result folder nor a revision of {paths.ROOT}",
            hint="git log --oneline lists revisions; . is the tree as it is",
        )
    return Revision(name, commit, _clones() / commit)


def _git(*words: str) -> str:
    """What git says; "" when it refuses."""
    try:
        done = subprocess.run([*_GIT, *words], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        raise CapabilityError("program git is not installed", hint=install_hint("git")) from None
    return done.stdout.strip() if done.returncode == 0 else ""


@contextlib.contextmanager
def prepared(
    revisions: Sequence[Revision], tell: Callable[[str], None], log: Path
) -> Iterator[None]:
    """The clones and builds of the revisions, and afterwards no more than KEPT clones.

    While a comparison goes on, no other one removes clones.
    """
    folder = os.open(cachedir.make(_clones()), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH)
        for revision in revisions:
            _prepare(revision, tell, log)
        yield
        _remove_old(folder, tell)
    finally:
        os.close(folder)


def _clones() -> Path:
    return cachedir.root() / "revisions"


def _remove_old(folder: int, tell: Callable[[str], None]) -> None:
    """folder: the descriptor that has the lock."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # another comparison goes on, and removes them at its end
    trees = sorted(_clones().iterdir(), key=lambda tree: tree.stat().st_mtime)
    for tree in trees[: max(0, len(trees) - KEPT)]:
        tell(f"removing {tree}: more than {KEPT} clones")
        shutil.rmtree(tree, ignore_errors=True)


def _prepare(revision: Revision, tell: Callable[[str], None], log: Path) -> None:
    """Make the clone and the builds of a revision; quick where they are there."""
    if not (revision.tree / "dpctl").exists():
        tell(f"{revision.name}: cloning into {revision.tree}")
        _clone(revision, log)
    if revision.commit:
        os.utime(revision.tree)
    tell(f"{revision.name}: setting up {revision.tree} (minutes, if it is new)")
    _call(revision, [str(revision.tree / "dpctl"), "--version"], log, "the set-up")


def _clone(revision: Revision, log: Path) -> None:
    fresh = revision.tree.with_suffix(".new")
    cachedir.make(fresh.parent)
    # A set-up that another call left half done begins anew.
    _call(revision, ["rm", "-rf", str(fresh)], log, "removing an old clone")
    clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(paths.ROOT), str(fresh)]
    _call(revision, clone, log, "git clone")
    checkout = ["git", "-C", str(fresh), "checkout", "--quiet", "--detach", revision.commit]
    _call(revision, checkout, log, "git checkout")
    if not (fresh / "dpctl").exists():
        raise LocalError(f"revision {revision.name} has no dpctl", hint="take a newer one")
    fresh.rename(revision.tree)


def begin(revisions: Sequence[Revision], blocks: int, folder: Path) -> None:
    """Write down what is to be compared."""
    about = {"revisions": [revision.label for revision in revisions], "blocks": blocks}
    write_atomic(folder / ABOUT, to_json(about))


def run(
    experiment: LoadedExperiment,
    file: Path,
    overrides: Sequence[str],
    revisions: Sequence[Revision],
    blocks: int,
    folder: Path,
    begun: Callable[[int, Revision], None],
) -> None:
    """Make all blocks; `read` finds those that are complete, also when this raises an error.

    begun: told of each half of a block how many were made before, and whose it is.
    """
    for block in range(blocks):
        order = list(enumerate(revisions))
        for half, (number, revision) in enumerate(order if block % 2 == 0 else reversed(order)):
            name = f"{'AB'[number]}-{block}"
            begun(2 * block + half, revision)
            argv = [str(revision.tree / "dpctl"), "run", str(file.resolve()), "--quiet"]
            argv += ["--out", str((folder / name).resolve())]
            argv += [word for text in overrides for word in ("--set", text)]
            argv += ["--set", "sweep.repetitions=1"]
            argv += ["--set", f"seed={(experiment.spec.seed + block) % 2**63}"]
            _call(revision, argv, folder / f"{name}.log", "dpctl run", fine=_MEASURED)


def is_comparison(folder: Path) -> bool:
    return foreign.is_file(folder / ABOUT)


def read(folder: Path) -> Comparison:
    """The comparison that a folder has; LocalError when none of its blocks is complete."""
    comparison = look(folder)
    if not comparison.pairs:
        raise LocalError(f"{folder} has no block that both revisions have run")
    return comparison


def look(folder: Path) -> Comparison:
    """The comparison that a folder has, of which no block may be complete yet."""
    try:
        about = foreign.read_json(folder / ABOUT)
        names, planned = [str(name) for name in about["revisions"]], int(about["blocks"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise LocalError(f"{folder / ABOUT} cannot be read: {error!r}") from error
    if len(names) != 2:
        raise LocalError(f"{folder / ABOUT} cannot be read: it has not two revisions")
    blocks = ((folder / f"A-{block}", folder / f"B-{block}") for block in itertools.count())
    # The verdicts are what a run writes last.
    whole = itertools.takewhile(
        lambda pair: all(foreign.is_file(side / "claims.json") for side in pair), blocks
    )
    return Comparison(names, planned, list(whole))


def _call(
    revision: Revision,
    argv: Sequence[str],
    log: Path,
    what: str,
    *,
    fine: Sequence[int] = (0,),
) -> None:
    """Run a program to its end; RunFailed with its last words unless it ends as it should."""
    # The tree has a Python of its own.
    env = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
    with ExitStack() as stack:
        with disk_errors(log):
            out = stack.enter_context(log.open("ab"))
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env,
            start_new_session=True,
        )
        try:
            status = process.wait()
        except BaseException:
            # All of it: pip, say, would go on with what the next set-up begins anew.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    if status not in fine:
        said = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        errors = [line for line in said if line.startswith("error: ")]
        raise RunFailed(
            f"{what} of revision {revision.name} {ending(status)}: "
            f"{(errors or said)[-1].removeprefix('error: ')}",
            hint=f"see {log}",
        )
