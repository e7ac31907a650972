# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes all pages of the reference into a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from datapath.cli.reference import catalogue, commands, formats

PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    "commands": commands.page,
    "experiment-format": formats.experiment,
    "output-formats": formats.output,
    "metrics": catalogue.metrics,
    "algorithms": catalogue.algorithms,
    "algorithm-records": catalogue.records,
    "device-keys": catalogue.device_keys,
}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / f"{name}.md").write_text("\n".join(page()) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
