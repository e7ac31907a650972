#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs the tests of rdma-core and tells each result as a line of JSON.

driver.py FOLDER --dev dp0     FOLDER is tests/ of rdma-core's source

With ONE_PROCESS=1, tests of RDMA-CM are skipped: they are two processes on one address.

A line {"test": ...} says that a test begins, {"test": ..., "result": ..., "why": ...} that it
has ended: "passed", "skipped" or "failed".
"""

from __future__ import annotations

import json
import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

RESULTS = os.fdopen(os.dup(1), "w", buffering=1)


TWO_PROCESSES = "two processes on one address"


class Told(unittest.TestResult):
    """Results as they come; a failed part is told before the test ends."""

    def tell(self, test: unittest.TestCase, **more: str) -> None:
        print(json.dumps({"test": test.id(), **more}), file=RESULTS)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.tell(test)
        if os.environ.get("ONE_PROCESS") and type(test).__module__ == "tests.test_rdmacm":
            type(test).__unittest_skip__ = True
            type(test).__unittest_skip_why__ = TWO_PROCESSES

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.tell(test, result="passed", why="")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.tell(test, result="skipped", why=reason)

    def addError(self, test: unittest.TestCase, err) -> None:
        self.tell(test, result="failed", why=self._exc_info_to_string(err, test))

    addFailure = addError

    def addSubTest(self, test, subtest, err) -> None:
        if err is not None:
            self.addError(test, err)


def main() -> None:
    folder = sys.argv.pop(1)
    os.dup2(2, 1)  # what the tests print is not a result
    sys.path.insert(0, folder)
    from args_parser import parser

    tests = SourceFileLoader("tests", f"{folder}/__init__.py").load_module()
    parser.parse_args()
    unittest.defaultTestLoader.loadTestsFromModule(tests).run(Told())


if __name__ == "__main__":
    main()
