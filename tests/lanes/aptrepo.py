# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A small archive of Debian packages in a folder, for tests that need an apt that knows it."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

ARCHITECTURE = subprocess.run(
    ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
).stdout.strip()


class Archive:
    """Suites with packages of a few bytes each; `config` is an APT_CONFIG that knows them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "archive"
        self.config = folder / "apt.conf"
        self.sources = folder / "own.sources"
        self._control: dict[str, list[str]] = {}
        (self.folder / "pool").mkdir(parents=True)
        (folder / "parts").mkdir()
        self.config.write_text(
            f'Dir::Etc::sourcelist "{self.sources}";\nDir::Etc::sourceparts "{folder}/parts";\n'
        )
        self.trust()

    def trust(self, *, trusted: bool = True) -> None:
        """Whether the machine's sources tell apt to do without signatures, which are not here."""
        self.sources.write_text(
            f"Types: deb\nURIs: file:{self.folder}\nSuites: stable\nComponents: main\n"
            + ("Trusted: yes\n" if trusted else "")
        )

    def isolate(self) -> dict[str, str]:
        """An environment in which the real apt knows this archive and no package is installed."""
        state = self.config.parent
        for name in ("lists/partial", "cache/archives/partial"):
            (state / name).mkdir(parents=True)
        (state / "status").touch()
        with self.config.open("a") as config:
            config.write(
                f'Dir::State::lists "{state}/lists";\nDir::State::status "{state}/status";\n'
                f'Dir::Cache "{state}/cache";\nAPT::Sandbox::User "root";\n'
            )
        return {"APT_CONFIG": str(self.config)}

    def add(
        self,
        suite: str,
        name: str,
        version: str,
        files: dict[str, str] | None = None,
        *,
        depends: str = "",
        size: int = 0,
    ) -> Path:
        """Build a package and list it; `size` bytes of ballast that do not compress."""
        tree = self.folder / "build" / name
        (tree / "DEBIAN").mkdir(parents=True)
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: {ARCHITECTURE}\n"
            + (f"Depends: {depends}\n" if depends else "")
            + "Maintainer: nobody\nDescription: for a test\n"
        )
        (tree / "DEBIAN" / "control").write_text(control)
        for path, text in (files or {}).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        if size:
            (tree / "ballast").write_bytes(
                b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(size // 32))
            )
        deb = self.folder / "pool" / f"{name}_{version}.deb"
        plain = ["-Znone"] if size else []  # xz would try for long
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", *plain, "--build", str(tree), str(deb)],
            check=True,
            capture_output=True,
        )
        self._control.setdefault(suite, []).append(
            f"{control}Filename: pool/{deb.name}\nSize: {deb.stat().st_size}\n"
            f"SHA256: {hashlib.sha256(deb.read_bytes()).hexdigest()}\n"
        )
        return deb

    def publish(self, *suites: str) -> None:
        """Write the indices of these suites."""
        for suite in suites:
            listed = f"main/binary-{ARCHITECTURE}/Packages"
            index = self.folder / "dists" / suite / listed
            index.parent.mkdir(parents=True, exist_ok=True)
            index.write_text("\n".join(self._control.get(suite, [])))
            digest = hashlib.sha256(index.read_bytes()).hexdigest()
            (self.folder / "dists" / suite / "Release").write_text(
                f"Origin: test\nSuite: {suite}\nCodename: {suite}\nComponents: main\n"
                f"Architectures: {ARCHITECTURE}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
                f"SHA256:\n {digest} {index.stat().st_size} {listed}\n"
            )
