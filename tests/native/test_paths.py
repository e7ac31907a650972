# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the C parts are found: source tree, sanitized build, installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.errors import CapabilityError, LocalError
from datapath.native import paths


def test_artefacts_of_the_source_tree() -> None:
    assert paths.core_library() == paths.ROOT / paths.build_name() / "datapath" / "libdpcore.so"
    assert paths.libdir() == paths.core_library().parent
    assert "struct dp_packet" in paths.core_cdef().read_text()
    assert paths.bpf_object("steer").read_bytes()[:4] == b"\x7fELF"
    assert (paths.include_dir() / "engine" / "cc.h").is_file()


def test_compat_is_a_link_to_the_front() -> None:
    """Were it a copy, the loader would load a second engine."""
    for name in ("libibverbs.so.1", "libibverbs.so"):
        entry = paths.compat_dir() / name
        assert entry.is_symlink()
        assert entry.samefile(paths.verbs_library())


def test_environment_chooses_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAPATH_BUILD", "san")
    assert paths.build_name() == "build-san"
    monkeypatch.setenv("DATAPATH_BUILD", "fast")
    with pytest.raises(LocalError, match="DATAPATH_BUILD is 'fast'"):
        paths.core_library()


def test_what_is_not_built_is_named_with_the_fix() -> None:
    with pytest.raises(CapabilityError, match=r"nothing\.bpf\.o has not been built") as caught:
        paths.bpf_object("nothing")
    assert "dpctl" in caught.value.hint


def test_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All artefacts lie in one folder; the link is made in the user's cache."""
    installed = tmp_path / "lib"
    installed.mkdir()
    library = installed / "libdpverbs.so"
    library.write_bytes(b"")
    (installed / "librdmacm.so").write_bytes(b"")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "INSTALLED", installed)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        for name in ("libibverbs.so.1", "libibverbs.so"):
            assert (paths.compat_dir() / name).readlink() == library
        assert (paths.compat_dir() / "librdmacm.so").readlink() == installed / "librdmacm.so"
    with pytest.raises(CapabilityError, match=r"libdpcore\.so has not been built") as caught:
        paths.core_library()
    assert "install datapath-rdma again" in caught.value.hint
