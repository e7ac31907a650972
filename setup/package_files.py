# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Lists the files of the Python package that an installation carries.

Run by meson when it configures: `package_files.py ROOT` prints paths relative
to ROOT, one a line.  Headers are among them, since a congestion-control
algorithm is compiled against engine/cc.h on the user's machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The table of Debian packages, which messages name.
FILES = {"packages.txt"}
# C that is compiled on the user's machine.
SOURCES = "datapath/cc/tcp"
SUFFIXES = {".py", ".h", ".cdf", ".j2", ".html", ".css", ".js", ".sh", ".typed"}


def package_files(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root))
        for path in (root / "datapath").rglob("*")
        if (path.suffix in SUFFIXES or path.name in FILES or path.parent.match(SOURCES))
        and path.is_file()
    )


if __name__ == "__main__":
    print("\n".join(package_files(Path(sys.argv[1]))))
