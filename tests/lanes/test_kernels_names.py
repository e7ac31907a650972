# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names of kernels, and apt's sources in both of their forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from datapath.errors import LocalError
from datapath.lanes.kernels import releases, sources


@pytest.mark.parametrize(
    ("release", "generic"),
    [
        ("6.1.0-47-amd64", True),
        ("6.12.117+deb12-amd64", True),
        ("7.2.12+deb13-amd64", True),
        ("6.12.117+deb12-arm64", True),
        ("6.9.7+bpo-amd64", True),
        ("6.12-amd64", False),  # the package that follows 6.12
        ("amd64", False),
        ("6.12.117+deb12-cloud-amd64", False),
        ("6.12.117+deb12-rt-amd64", False),
        ("6.12.117+deb12-amd64-dbg", False),
        ("6.12.117+deb12-amd64-unsigned", False),
        ("6.1.0-47-cloud-amd64", False),
        ("6.12.117+deb12-686-pae", False),
    ],
)
def test_generic_flavour(release: str, generic: bool) -> None:
    assert releases.is_generic(release) is generic


def test_other_architectures_are_not_ours() -> None:
    assert releases.is_generic("6.12.117+deb12-arm64", "arm64")
    assert not releases.is_generic("6.12.117+deb12-arm64", "amd64")


KNOWN = ["6.1.0-47-amd64", "6.1.0-100-amd64", "6.12.9+deb13-amd64", "6.12.48+deb13-amd64"]


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("6.12", "6.12.48+deb13-amd64"),
        ("6.12.9", "6.12.9+deb13-amd64"),
        ("6.12.4", None),  # not 6.12.48
        ("6.1", "6.1.0-100-amd64"),  # not 6.12
        ("6.1.0-47-amd64", "6.1.0-47-amd64"),
        ("backports", "6.12.48+deb13-amd64"),
        ("7.0", None),
    ],
)
def test_newest_of_a_name(name: str, release: str | None) -> None:
    assert releases.newest(name, KNOWN) == release


SHUFFLED = [KNOWN[index] for index in (3, 1, 2, 0)]


def test_releases_are_sorted_by_number() -> None:
    assert sorted(SHUFFLED, key=releases.age) == KNOWN


def test_names_of_packages() -> None:
    assert releases.source_package("6.12.117+deb12-amd64") == "linux-source-6.12"
    assert releases.source_package("6.1.0-47-amd64") == "linux-source-6.1"


@pytest.mark.parametrize("name", ["", "backport", "6", "../6.12", "6.12/..", "linux-6.12", "6.12 "])
def test_what_names_no_kernel(name: str) -> None:
    with pytest.raises(LocalError, match="names no kernel"):
        releases.check_name(name)


DEB822 = """\
# the mirror of the house
Types: deb deb-src
URIs: https://mirror.example/debian
 https://second.example/debian
# a comment inside
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/house.gpg
Check-Valid-Until: no

Types: deb
URIs: https://mirror.example/security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY865UxYJKwYBBAHaRw8BAQdAd7Z0srwuhlB6JKFkcf4HU4SSS
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: https://off.example/debian
Suites: bookworm
Components: main
"""

ONE_LINE = """\
# deb https://off.example/debian bookworm main
deb [arch=amd64,arm64 signed-by=/a.gpg trusted=yes] https://mirror.example/debian bookworm main
deb-src https://mirror.example/debian bookworm main   # the source
deb [lang-=de] https://mirror.example/security bookworm-security main contrib
"""


def read(tmp_path: Path, name: str, text: str) -> list[sources.Stanza]:
    path = tmp_path / name
    path.write_text(text)
    return sources.read([path])


def test_stanzas(tmp_path: Path) -> None:
    first, second = read(tmp_path, "debian.sources", DEB822)
    assert first.types == ("deb", "deb-src")
    assert first.uris == ("https://mirror.example/debian", "https://second.example/debian")
    assert first.suites == ("bookworm", "bookworm-updates")
    assert dict(first.options) == {
        "Signed-By": "/usr/share/keyrings/house.gpg",
        "Check-Valid-Until": "no",
    }
    assert second.text() == DEB822.split("\n\n")[1] + "\n"


def test_one_line_entries(tmp_path: Path) -> None:
    first, source, third = read(tmp_path, "debian.list", ONE_LINE)
    assert first.uris == ("https://mirror.example/debian",)
    assert dict(first.options) == {
        "Architectures": "amd64 arm64",
        "Signed-By": "/a.gpg",
        "Trusted": "yes",
    }
    assert source.types == ("deb-src",)
    assert third.components == ("main", "contrib")
    assert dict(third.options) == {"Languages-Remove": "de"}


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    assert read(tmp_path, "debian.sources.disabled", DEB822) == []
    assert read(tmp_path, "debian.list.save", ONE_LINE) == []


@pytest.mark.parametrize(("name", "text"), [("a.sources", DEB822), ("a.list", ONE_LINE)])
def test_another_suite_of_the_same_archive(tmp_path: Path, name: str, text: str) -> None:
    """Not of the security archive, which comes from another place."""
    stanza = sources.derive(read(tmp_path, name, text), "bookworm", ("trixie-backports",))
    assert stanza is not None
    assert stanza.uris[0] == "https://mirror.example/debian"
    assert "security" not in stanza.text()
    assert "Suites: trixie-backports\n" in stanza.text()
    assert "Types: deb\n" in stanza.text()
    assert "Signed-By: /" in stanza.text()
    # What apt reads is what was meant.
    assert read(tmp_path, "derived.sources", stanza.text()) == [stanza]


def test_no_archive_of_debian(tmp_path: Path) -> None:
    text = "deb https://mirror.example/tool stable tool\n"
    assert sources.derive(read(tmp_path, "a.list", text), "bookworm", ("x",)) is None
