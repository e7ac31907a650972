# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What guests are run with, for QEMUs of which this machine has only one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from datapath.errors import CapabilityError
from datapath.lanes import accel
from datapath.lanes.kernels import Kernel, cache

KERNEL = Kernel("6.12.1-amd64", Path("/none"), Path("/none"), None, "")
ONE_THREAD = ("-accel", "tcg,thread=single")


@pytest.fixture
def without_kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "_kvm_works", lambda _: (False, "no KVM"))


def qemu(folder: Path, words: str) -> str:
    """A QEMU that says this, of its version or of KVM, and ends."""
    program = folder / "qemu"
    program.write_text(f"#!/bin/sh\n[ -z '{words}' ] || echo '{words}'\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.usefixtures("without_kvm")
@pytest.mark.parametrize(
    ("words", "cpus", "options"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)", 2, ONE_THREAD),
        ("QEMU emulator version 8.0.5", 2, ONE_THREAD),
        ("QEMU emulator version 8.1.0", 2, ()),
        ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", 2, ()),
        ("QEMU emulator version 7.2.22", 1, ()),
        ("no version at all", 2, ONE_THREAD),
    ],
)
def test_an_old_translator_gets_one_thread(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    cpus: int,
    options: tuple[str, ...],
) -> None:
    monkeypatch.setattr(accel, "QEMU", qemu(tmp_path, words))
    chosen = accel.accelerator(KERNEL, cpus, guests=2)
    assert chosen.cpus == cpus
    assert chosen.qemu == ("-cpu", "max,erms=off,fsrm=off", *options)
    alone = () if cpus == 1 else ("--append", "maxcpus=1")
    assert chosen.vng == ("--disable-kvm", "--append", "mitigations=off", *alone)
    assert ("one thread" in chosen.words) == bool(options)
    assert "no KVM" in chosen.words


@pytest.mark.usefixtures("without_kvm")
@pytest.mark.parametrize(
    ("guests", "cpus", "expected"),
    [(1, {0, 1}, 2), (2, {0, 1}, 1), (2, {0, 1, 2, 3}, 2), (2, {0, 1, 2}, 1), (4, {0, 1}, 1)],
)
def test_emulated_guests_have_no_more_cpus_than_the_machine(
    monkeypatch: pytest.MonkeyPatch, guests: int, cpus: set[int], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cpus)
    assert accel.accelerator(KERNEL, None, guests).cpus == expected
    assert accel.accelerator(KERNEL, 2, guests).cpus == 2


def test_kvm_needs_no_translator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "_kvm_works", lambda _: (True, "tried"))
    monkeypatch.setattr(accel, "QEMU", "/none")
    for cpus in (2, None):
        chosen = accel.accelerator(KERNEL, cpus, guests=64)
        assert chosen == accel.Accelerator(2, (), (), "KVM: tried", emulated=False)


@pytest.mark.usefixtures("without_kvm")
def test_a_missing_qemu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "QEMU", "/none")
    with pytest.raises(CapabilityError, match="/none is not installed"):
        accel.accelerator(KERNEL, 2, guests=2)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of notes on KVM, which this machine has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: True)
    accel._kvm_works.cache_clear()
    cache.folder().mkdir(parents=True)
    return cache.folder()


@pytest.mark.parametrize("text", ["", "n", "no", "no ", "yesterday it worked"])
def test_half_a_note_is_none(notes: Path, text: str) -> None:
    accel._note(KERNEL).write_text(text)
    assert accel.tried(KERNEL) is None


@pytest.mark.parametrize(
    ("words", "works", "kept"),
    [
        ("[    0.000000] Linux version 6.12.1-amd64", True, True),
        ("KVM internal error. Suberror: 1", False, True),
        ("kvm_buf_set_msrs: Assertion failed.", False, True),
        ("Could not access KVM kernel module: No such file or directory", False, False),
        ("ioctl(KVM_CREATE_VM) failed: 16 Device or resource busy", False, False),
        ("cannot set up guest memory: Cannot allocate memory", False, False),
        ("", False, False),
    ],
)
def test_what_may_pass_is_not_kept(
    notes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    works: bool,
    kept: bool,
) -> None:
    monkeypatch.setattr(accel, "QEMU", qemu(tmp_path, words))
    answer = accel._kvm_works(KERNEL)
    assert answer[0] == works
    assert accel.tried(KERNEL) == (answer if kept else None)
    assert len(list(notes.iterdir())) == kept


def test_silence_is_not_kept(notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have been busy.  This process does not try again."""
    program = Path(qemu(tmp_path, ""))
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr(accel, "QEMU", str(program))
    monkeypatch.setattr(accel, "_TRIAL_S", 0.1)
    answer = accel._kvm_works(KERNEL)
    assert answer == (False, "with KVM the kernel said nothing for 0.1 s")
    program.unlink()
    assert accel._kvm_works(KERNEL) == answer
    assert list(notes.iterdir()) == []
