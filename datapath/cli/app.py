# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The commands of dpctl put together, and how errors are told."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from typing import Annotated, Any

import typer

from datapath import interrupts
from datapath.cli import (
    INTERRUPTED,
    checking,
    clean,
    collectives,
    completion,
    examining,
    experiments,
    fabric,
    hunting,
    interop,
    kernels,
    metrics,
    nccl,
    programs,
    results,
    running,
    top,
    visits,
    vnic,
)
from datapath.cli.algorithms import app as cc_app
from datapath.cli.layout import WIDEST, lay_out_help
from datapath.cli.output import Ended, tell_error
from datapath.cli.values import in_words, name_values
from datapath.errors import CapabilityError, DatapathError

_INTERNAL = 4
_UNREAD = 128 + signal.SIGPIPE
"""Exit code when nobody reads the output any more, as shells have it."""
# typer may bring a click of its own, so its base class is found and not imported.
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]
name_values()
lay_out_help()
app = typer.Typer(
    name="dpctl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
    rich_markup_mode=None,
    help="Datacentre transports in the laboratory: experiments from one YAML file.\n\n"
    "\b\n"
    "  dpctl run experiments/quickstart.yaml  measure, judge, write the report\n"
    "  dpctl validate my.yaml                 tell every mistake with its place\n"
    "  dpctl exec --device dp0=afxdp:eth0 -- ib_write_bw\n"
    "                                         any verbs program on our device\n",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"dpctl {version('datapath-rdma')}")
        except PackageNotFoundError:
            from datapath import __version__

            typer.echo(f"dpctl {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="DATAPATH_DEBUG", help="Show tracebacks of errors.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if debug:
        os.environ["DATAPATH_DEBUG"] = "1"


experiments.register(app)
checking.register(app)
results.register(app)
examining.register(app)
clean.register(app)
programs.register(app)
visits.register(app)
top.register(app)
metrics.register(app)
interop.register(app)
running.register(cc_app)
hunting.register(cc_app)
app.add_typer(cc_app, name="cc")
app.add_typer(kernels.app, name="kernel")
app.add_typer(fabric.app, name="fabric")
app.add_typer(vnic.app, name="vnic")
app.add_typer(collectives.app, name="collective")
app.add_typer(nccl.app, name="nccl")
completion.register(app)
for group in app.registered_groups:  # whole at any width, as those of commands are
    if group.typer_instance is not None:
        group.short_help = group.typer_instance.info.help


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code, with errors told on stderr."""
    try:
        code = _command(arguments)
    except BrokenPipeError:
        _drop_output()  # whoever read it has gone (`dpctl list | head`)
        return _UNREAD
    except typer.Exit as error:
        return error.exit_code
    except Ended:
        return INTERRUPTED
    except (KeyboardInterrupt, typer.Abort):
        tell_error("interrupted")
        return INTERRUPTED
    except _ClickException as error:
        return _usage(error, arguments)
    except DatapathError as error:
        _traceback()
        for part in getattr(error, "lacks", None) or [error]:
            tell_error(str(part), part.hint)
        return error.exit_code
    except OSError as error:
        _traceback()
        return _machine_failed(error)
    except MemoryError:
        _traceback()
        tell_error("out of memory", "use a machine with more, or a smaller experiment")
        return CapabilityError.exit_code
    except Exception as error:
        _traceback()
        text = " ".join(str(error).split())
        tell_error(
            f"internal: {type(error).__name__}: {text}",
            "this is a mistake in dpctl; DATAPATH_DEBUG=1 shows where",
        )
        return _INTERNAL
    return code if isinstance(code, int) else 0


def _command(arguments: list[str]) -> object:
    """Run the command; where a library made an error of an ending signal, raise the signal."""
    command = typer.main.get_command(app)
    with interrupts.restored():
        # Not command.main(), which makes exit codes of its own of ^C and of a closed pipe.
        with command.make_context("dpctl", arguments) as context:
            code = command.invoke(context)
        sys.stdout.flush()
    if code != INTERRUPTED:
        interrupts.check()
    return code


def _machine_failed(error: OSError) -> int:
    """Tell an error of the system that no part of dpctl foresaw; dpctl made no mistake."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    tell_error(": ".join([" -> ".join(names), error.strerror or str(error)]).removeprefix(": "))
    if error.errno == errno.ENOSPC:
        _drop_output()  # it may be what is full, and Python writes the rest of it at its end
    return CapabilityError.exit_code


def _drop_output() -> None:
    """Drop the output that is not written yet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: Exception, arguments: list[str]) -> int:
    message = in_words(str(error.format_message()))  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else _named(arguments)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
    else:
        tell_error(message, f"{path} --help")
    return int(error.exit_code)  # type: ignore[attr-defined]


def _named(arguments: list[str]) -> str:
    """The command that the words name: `dpctl cc hunt`."""
    command: Any = typer.main.get_command(app)
    path = "dpctl"
    for word in arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        path += f" {word}"
    return path


def _traceback() -> None:
    if os.environ.get("DATAPATH_DEBUG"):
        traceback.print_exc()
