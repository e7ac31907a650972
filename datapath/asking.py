# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Asks many others at the same time, so that one that is silent delays nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from datapath.errors import DatapathError, RemoteError

_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")
_AT_ONCE = 64


def ask_all(
    ask: Callable[[_Asked], _Told], whom: Sequence[_Asked]
) -> tuple[list[_Told], list[RemoteError]]:
    """(what those tell that answer, the errors of those that do not answer as they should).

    Other errors of the toolkit, such as of one that has ended meanwhile, are in neither.
    """

    def asked(each: _Asked) -> _Told | DatapathError:
        try:
            return ask(each)
        except DatapathError as error:
            return error

    with ThreadPoolExecutor(max_workers=min(len(whom), _AT_ONCE) or 1) as pool:
        answers = list(pool.map(asked, whom))
    told = [answer for answer in answers if not isinstance(answer, DatapathError)]
    return told, [answer for answer in answers if isinstance(answer, RemoteError)]
