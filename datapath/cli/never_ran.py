# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A plugin of pytest for `dpctl selftest`: how many of the collected tests never ran.

pytest stops early with -x and its like, and when a process of pytest-xdist dies.  The JUnit log
holds only tests that ran, and the exit status is then often that of any failed test.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

OPTION = "--never-ran"


class _Count:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._ran: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._ran.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._file.write_text(str(session.testscollected - len(self._ran)), encoding="ascii")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION, metavar="FILE", help="write there how many of the collected tests never ran"
    )


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption(OPTION)
    if file and not hasattr(config, "workerinput"):  # a worker of xdist has a part of the tests
        config.pluginmanager.register(_Count(Path(file)))
