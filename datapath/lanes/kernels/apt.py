# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Packages through apt, with lists of our own.

The machine's apt and dpkg are left as they are: lists, caches and the status
file are in a folder of the kernels' cache, so no root is needed and nothing
gets installed.  What the machine has set up for apt counts here as well
(mirror, proxy, keys), and apt verifies signatures and digests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from datapath.errors import CapabilityError
from datapath.lanes.kernels import releases, sources

BACKPORTS_FROM = "trixie"
"""Debian 13: the suite whose backports have the newest kernels."""

_TIMEOUT_S = 1800
_OPTIONS = {
    "Acquire::AllowInsecureRepositories": "false",
    "Acquire::Languages": "none",
    "Acquire::Retries": "2",
    "APT::Default-Release": "",  # of the machine's sources; ours may not have it
    "APT::Get::AllowUnauthenticated": "false",
    "APT::Install-Recommends": "false",
}


@dataclass(frozen=True)
class Package:
    """One version of a package, as the lists have it."""

    name: str
    version: str
    depends: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}={self.version}"


class Apt:
    """apt with lists of its own, in `folder`.

    sources_file: a file in deb822 form; None for the machine's own sources.
    """

    def __init__(self, folder: Path, sources_file: Path | None = None) -> None:
        self._complaint = ""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        own = {
            "Dir::State::lists": f"{folder}/lists",
            # Nothing is installed, as far as this apt knows.
            "Dir::State::status": f"{folder}/status",
            "Dir::Cache": f"{folder}/cache",
        }
        if sources_file:
            own |= {"Dir::Etc::sourcelist": f"{sources_file}", "Dir::Etc::sourceparts": "/dev/null"}
        options = _OPTIONS | own
        if os.geteuid() == 0:
            # apt's own user cannot enter a cache folder under /root.
            options["APT::Sandbox::User"] = "root"
        self._options = [f"-o{key}={value}" for key, value in options.items()]
        self.cache = folder / "cache"

    def update(self) -> None:
        """Get the lists; errors are told when a package is missing."""
        done = self._run("apt-get", "-q", "update", check=False)
        self._complaint = _first_complaint(done)

    def releases(self) -> list[str]:
        """Releases of generic kernels for this machine's architecture, oldest first."""
        prefix = "linux-image-"
        names = self._run("apt-cache", "pkgnames", prefix).stdout.split()
        found = (name.removeprefix(prefix) for name in names)
        return sorted(
            (r for r in found if releases.is_generic(r, architecture())), key=releases.age
        )

    def package(self, name: str, version: str = "") -> Package | None:
        """The newest version of a package, or the given one; None when the lists have none."""
        wanted = [f"{name}={version}"] if version else ["--no-all-versions", name]
        done = self._run("apt-cache", "show", *wanted, check=False)
        fields = dict(re.findall(r"(?m)^(Version|Depends): (.*)$", done.stdout.split("\n\n")[0]))
        if done.returncode != 0 or "Version" not in fields:
            return None
        alternatives = fields.get("Depends", "").split(",")
        depends = (re.split(r"[\s(|:]", text.strip(), maxsplit=1)[0] for text in alternatives)
        return Package(name, fields["Version"], tuple(name for name in depends if name))

    def same_release(self, package: Package, release: str) -> list[Package]:
        """The package, and its dependencies that carry the same release in their names."""
        found = {package.name: package}
        waiting = [package]
        while waiting:
            for name in waiting.pop().depends:
                if name.endswith(f"-{release}") and name not in found:
                    part = self.package(name, package.version)
                    if part is None:
                        raise self.missing(f"{name} {package.version}")
                    found[name] = part
                    waiting.append(part)
        return list(found.values())

    def download(self, packages: Iterable[Package], into: Path) -> list[Path]:
        """Download these into a folder, verified by apt; the paths of the .deb files."""
        self._run("apt-get", "-q", "download", *map(str, packages), cwd=into)
        return sorted(into.glob("*.deb"))

    def download_closure(
        self, wanted: Iterable[str], into: Path, have: Iterable[Package] = ()
    ) -> list[Path]:
        """Download these (NAME or NAME=VERSION) and all that they depend on but `have`."""
        (into / "partial").mkdir(parents=True, exist_ok=True)
        status = into / "status"
        status.write_text("\n".join(map(_as_installed, have)))
        options = [f"-oDir::Cache::archives={into}", f"-oDir::State::status={status}"]
        self._run("apt-get", "-q", "-y", *options, "--download-only", "install", *wanted)
        return sorted(into.glob("*.deb"))

    def missing(self, what: str) -> CapabilityError:
        """The error for a missing package, with apt's complaint if there was one."""
        reason = f" ({self._complaint})" if self._complaint else ""
        return CapabilityError(
            f"apt's sources have no {what}{reason}",
            hint="check the network and the sources of apt; dpctl kernel list shows what there is",
        )

    def _run(
        self, *argv: str, check: bool = True, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        program, *arguments = argv
        try:
            done = subprocess.run(
                [program, *self._options, *arguments],
                cwd=cwd,
                env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            raise no_debian() from None
        except subprocess.TimeoutExpired:
            raise CapabilityError(
                f"{program} {arguments[-1]} took more than {_TIMEOUT_S} s",
                hint="check the network and the sources of apt",
            ) from None
        if check and done.returncode != 0:
            raise CapabilityError(
                f"{program}: {_first_complaint(done) or f'exit code {done.returncode}'}",
                hint="check the network and the sources of apt, and room on the disk",
            )
        return done


def machines_own(folder: Path) -> Apt:
    """apt with the machine's own sources."""
    return Apt(folder / "own")


def backports(folder: Path) -> Apt:
    """apt with the backports suite, from where the machine's own Debian comes from.

    Raises:
        CapabilityError: the machine's sources have no archive of Debian.
    """
    own = sources.read(_source_files())
    suites = (BACKPORTS_FROM, f"{BACKPORTS_FROM}-backports")
    stanza = sources.derive(own, _codename(), suites)
    if stanza is None:
        raise CapabilityError(
            "the sources of apt have no archive of Debian, so backports cannot be found",
            hint="dpctl kernel install with a version that this system has",
        )
    folder = folder / "backports"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "backports.sources"
    path.write_text(stanza.text())
    return Apt(folder, path)


def architecture() -> str:
    """dpkg's word for this machine."""
    if not shutil.which("dpkg") or not shutil.which("apt-get"):
        raise no_debian()
    done = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def no_debian() -> CapabilityError:
    return CapabilityError(
        "kernels come as Debian packages, and this system has no apt",
        hint="use Debian 12 or newer for the vm lane",
    )


def _as_installed(package: Package) -> str:
    """A stanza of dpkg's status file: installed, and held so that apt gets no other copy."""
    return (
        f"Package: {package.name}\nStatus: hold ok installed\nVersion: {package.version}\n"
        f"Architecture: {architecture()}\nMaintainer: none\nDescription: unpacked already\n"
    )


def _source_files() -> list[Path]:
    """The machine's files of sources, as its apt is configured."""
    done = subprocess.run(
        [
            "apt-config",
            "shell",
            "LIST",
            "Dir::Etc::sourcelist/f",
            "PARTS",
            "Dir::Etc::sourceparts/d",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = dict(re.findall(r"(?m)^(\w+)='(.*)'$", done.stdout))
    files = [Path(found.get("LIST", ""))]
    parts = Path(found.get("PARTS", "/nonexistent"))
    if parts.is_dir():
        files += sorted(parts.iterdir())
    return [path for path in files if path.is_file()]


def _codename() -> str:
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return ""
    found = re.search(r'(?m)^VERSION_CODENAME="?(\w+)', text)
    return found[1] if found else ""


def _first_complaint(done: subprocess.CompletedProcess[str]) -> str:
    """apt's first error or warning, in one line."""
    lines = (done.stderr + done.stdout).splitlines()
    for mark in ("E: ", "W: "):
        for line in lines:
            if line.startswith(mark):
                return line.removeprefix(mark)
    return ""
