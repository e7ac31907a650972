# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a hook raises under the interpreter, told as a mistake of the algorithm's file.

Compiled code raises nothing: it goes on with some value, or ends the call (docs/cc.md).
"""

from __future__ import annotations

import traceback

from datapath.cc.algorithm import Algorithm
from datapath.cc.source import display
from datapath.cc.subset import analyse


def finding(error: Exception, algorithm: Algorithm) -> str:
    """File, line, hook and reason, and what compiled code does there.

    Raises:
        Exception: `error` itself, which no hook of the algorithm raised.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    hooks = {function.__code__: name for name, function in algorithm.hooks.items()}
    first = next((i for i, (frame, _) in enumerate(frames) if frame.f_code in hooks), None)
    if first is None:
        raise error
    files = analyse(algorithm).files
    places = [(frame.f_code.co_filename, line) for frame, line in frames[first:]]
    file, line = [place for place in places if place[0] in files][-1]
    reason = str(error.args[-1]) if error.args else type(error).__name__
    hook = hooks[frames[first][0].f_code]
    return f"{display(file)}:{line}: {hook}: {reason}{_compiled(error, reason)}"


def _compiled(error: Exception, reason: str) -> str:
    """What compiled code does instead, as far as the kind of the error tells it."""
    nothing = isinstance(error, TypeError) and "None" in reason
    if isinstance(error, IndexError) or nothing or "range()" in reason:
        return "; compiled code ends the call there"
    if isinstance(error, ZeroDivisionError):
        return "; compiled code goes on, with infinity, NaN or a 0"
    if isinstance(error, UnboundLocalError):
        return "; compiled code goes on, with any value"
    if isinstance(error, (OverflowError, ValueError)):
        whole = any(word in reason for word in ("integer", "int ", "shift"))
        return f"; compiled code goes on, with {'any whole number' if whole else 'infinity or NaN'}"
    return ""
