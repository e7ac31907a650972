# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A child that lives for longer than the device which its parent had open.

Says "closed" when the parent has closed the device, and waits to be killed; the child ends then.
"""

from __future__ import annotations

import os

from pair import Side, pair


def exchange(a: Side, b: Side) -> None:
    b.recv(10)
    a.send([a.sge(10)])
    a.done()
    b.done()


def main() -> None:
    a, b = pair()
    exchange(a, b)
    ends, keeps = os.pipe()
    if os.fork() == 0:
        os.close(keeps)
        os.read(ends, 1)
        os._exit(0)
    exchange(a, b)
    a.context.close()
    a, b = pair()
    exchange(a, b)
    a.context.close()
    print("closed", flush=True)
    os.read(ends, 1)


main()
