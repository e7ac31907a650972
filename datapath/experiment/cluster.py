# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tasks on the workers of a Dask scheduler."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from queue import SimpleQueue
from typing import Any, TypeVar

import datapath
from datapath.errors import CapabilityError, LocalError, RemoteError, RunFailed

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_LOST = ("scheduler-connection-lost", "scheduler-restart")
"""Why Dask cancels all tasks of a client at once."""

_GO_ON = "then go on with `dpctl run --resume DIR`"


def check_address(address: str) -> None:
    """LocalError for what cannot be the address of a Dask scheduler, before anything begins."""
    if not re.fullmatch(r"(\w+://)?(\[[^]]+\]|[^:/\s]+):\d{1,5}", address):
        raise LocalError(
            f"--dask {address} is not HOST:PORT", hint="for example --dask 127.0.0.1:8786"
        )


def made(
    function: Callable[[_Task], _Result], tasks: Sequence[_Task], address: str
) -> Iterator[tuple[_Task, _Result | RunFailed]]:
    """Tasks with what the function returns for them, as they come.

    RunFailed is a task's own: its workers died, or somebody cancelled it alone.  Whatever else
    comes in place of a result would come for each of them, and is raised.
    """
    with _client(address) as client:
        _check_workers(client, function.__module__)
        waiting = {client.submit(function, task, pure=False): task for task in tasks}
        ended: SimpleQueue[Any] = SimpleQueue()
        for future in waiting:
            future.add_done_callback(ended.put)
        while waiting:
            future = ended.get()
            task = waiting.pop(future)
            try:
                result = future.result()
            except Exception as error:
                if not _is_of_one_task(error):
                    raise _of_all(error, address) from error
                result = _unanswered(error)
            yield task, result


def _check_workers(client: Any, module: str) -> None:
    """CapabilityError for a worker that cannot import a module.

    It would end with its first task, and the scheduler would wait for another worker for ever.
    """
    found = client.run(importlib.import_module, module, on_error="return")
    for worker, error in found.items():
        if isinstance(error, ImportError):
            raise CapabilityError(
                f"the Dask worker {worker} cannot make runs: {error}",
                hint=f"install datapath {datapath.__version__} there, {_GO_ON}",
            )


def _is_of_one_task(error: Exception) -> bool:
    killed: type[Exception] = importlib.import_module("distributed").KilledWorker
    reason = getattr(error, "reason", None)  # an older Dask gives none
    alone = isinstance(error, CancelledError) and reason not in (None, *_LOST)
    return alone or isinstance(error, killed)


def _of_all(error: Exception, address: str) -> RemoteError:
    if isinstance(error, CancelledError):
        return RemoteError(
            f"the Dask scheduler at {address} is gone, or was restarted",
            hint=f"see its logs, {_GO_ON}",
        )
    return RemoteError(
        f"a worker of the Dask scheduler at {address} failed: {type(error).__name__}: {error}",
        hint=f"see its logs, {_GO_ON}",
    )


def _unanswered(error: Exception) -> RunFailed:
    return RunFailed(
        f"no answer came from its worker: {type(error).__name__}: {error}",
        hint="it may have run out of memory: see the logs of the workers",
    )


@contextlib.contextmanager
def _client(address: str) -> Iterator[Any]:
    """A client of a Dask scheduler; at tls://... by the certificates of Dask's configuration.

    Dask trusts every peer that can connect: tasks and answers are pickled Python.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise CapabilityError(
            "--dask needs the Python package distributed", hint="pip install distributed"
        ) from None
    encrypted = address.startswith("tls://")
    hint = "check distributed.comm.tls in Dask's configuration; docs/simulator.md has an example"
    try:
        client = distributed.Client(
            address, security=distributed.Security(), timeout="10s", set_as_default=False
        )
    except (OSError, ValueError, TypeError) as error:  # TypeError: no certificates
        raise LocalError(
            f"no Dask scheduler at {address}: {error}",
            hint=hint if encrypted else "start one: dask scheduler",
        ) from None
    try:
        yield client
    finally:
        client.close()
