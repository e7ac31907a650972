# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Opens the device, sends a message, closes it; twice, and then for a child's message."""

from __future__ import annotations

import os

from pair import pair


def once() -> None:
    a, b = pair()
    b.recv(10)
    a.send([a.sge(10)])
    a.done()
    b.done()
    a.context.close()


def main() -> None:
    once()
    once()
    child = os.fork()
    if child == 0:
        once()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


main()
