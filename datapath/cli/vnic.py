# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`dpctl vnic`: virtual cards of this machine."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datapath import privileges
from datapath.cli.output import Format, FormatOption, print_rows, until_interrupted
from datapath.cli.screen import Screen
from datapath.errors import LocalError
from datapath.terminal import printable

if TYPE_CHECKING:
    from datapath.experiment.document import Document
    from datapath.vnic.spec import CardFile

app = typer.Typer(
    no_args_is_help=True, help="The virtual card: RDMA of guests over lossy networks."
)


@app.command()
def run(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The hosts, tenants and guests (docs/vnic.md)."),
    ],
    host: Annotated[
        str, typer.Option(help="Which host of the file this is. Default: by its addresses.")
    ] = "",
) -> None:
    """Run this host's card until it is interrupted. Needs root.

    \b
    dpctl vnic run cards.yaml
    dpctl vnic run cards.yaml --host left
    """
    from datapath.vnic.service import check_private, host_here, serve

    spec, document = _load(file)
    check_private(file)
    if host and host not in spec.hosts:
        raise LocalError(f"{file} has no host {host}", hint=f"hosts are {', '.join(spec.hosts)}")
    me = host or host_here(spec)
    _check_devices(spec, document, me)
    privileges.check("a card", privileges.AF_XDP)
    serve(spec, me, file.parent, _tell)


@app.command()
def show(
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="The card of one host. Default: all.")
    ] = "",
    every: Annotated[
        float | None,
        typer.Option(min=0.1, max=86400, help="Show again after so many seconds."),
    ] = None,
    fmt: FormatOption = Format.table,
) -> None:
    """Show tunnels, guests and counters of the cards that run here.

    Each class of each tenant has a line for each other host: what it sends, and RTT, wait, loss,
    queue and window. With --every the rate is that of the last interval, and the screen is
    refreshed.

    \b
    dpctl vnic show
    dpctl vnic show left --every 1
    dpctl vnic show --format json
    """
    screen = Screen(fmt is Format.table and bool(every))
    with until_interrupted() if every else contextlib.nullcontext(), screen:
        before = _look(host)
        screen.show(lambda: _print(before, None, fmt))
        while every:
            time.sleep(every)
            now = _look(host)
            screen.show(lambda: _print(now, before, fmt))  # noqa: B023
            before = now


@dataclass(frozen=True)
class Look:
    """What the cards told, and when."""

    cards: list[dict[str, Any]]
    time_s: float

    def sent_bytes(self) -> dict[tuple[str, ...], int]:
        """By card, tenant, class and other host."""
        return {
            (card["host"], vni, name, peer): row["tx_bytes"]
            for card in self.cards
            for vni, name, peer, row in _classes_of(card)
        }


def _look(host: str) -> Look:
    from datapath.vnic.watching import running

    cards = running(host)
    if not cards:
        raise LocalError(
            "no card runs here" + (f" for host {host}" if host else ""),
            hint="dpctl vnic run FILE; look as root, and in the card's network namespace",
        )
    return Look(cards, time.monotonic())


def _check_devices(spec: CardFile, document: Document, me: str) -> None:
    """InvalidFile when a guest's device is one that the host needs itself."""
    from datapath.experiment.document import InvalidFile
    from datapath.vnic.devices import claim
    from datapath.vnic.spec import ANOTHER_DEVICE

    address, port = str(spec.hosts[me].address), spec.hosts[me].port
    problems = [
        document.problem(place, why)
        for device, place in spec.devices(me)
        if (why := claim(device, address, port))
    ]
    if problems:
        raise InvalidFile(problems, hint=ANOTHER_DEVICE)


def _load(file: Path) -> tuple[CardFile, Document]:
    from datapath.experiment.document import Kind
    from datapath.experiment.load import load_model
    from datapath.vnic.spec import CardFile

    kind = Kind(
        what="a file of virtual cards",
        file="a file of virtual cards",
        begin="begin with `version: 1` and `key: ...`; docs/vnic.md has the format",
        shorter="docs/vnic.md has the format",
        instead_of_folder="name a file of virtual cards in it",
        values_max=100_000,  # 4096 guests, each of a tenant of its own, have fewer
    )
    return load_model(file, CardFile, kind, "correct the file; docs/vnic.md has the format")


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def _print(now: Look, before: Look | None, fmt: Format) -> None:
    if fmt is not Format.table:
        print_rows(now.cards, [], fmt)
        return
    rates = _rates_mbps(now, before) if before else {}
    for card in now.cards:
        if "reason" in card:
            print(printable(f"{card['host']}: {card['state']}: {card['reason']}") + "\n")
            continue
        print(printable(f"{card['host']} on {card['port']}, process {card['pid']}"))
        print_rows(list(_tunnels(card)), _TUNNEL_COLUMNS, fmt)
        for name, why in card.get("reasons", {}).items():
            print(printable(f"{name}: {why}"))
        print_rows(list(_guests(card)), _GUEST_COLUMNS, fmt)
        for why in card.get("waiting", {}).values():
            print(printable(f"waiting: {why}"))
        print_rows(list(_classes(card, rates)), _CLASS_COLUMNS, fmt)
        print(f"refused: {_nonzero(card['network'] | card['handshakes'], _REFUSED) or 'nothing'}\n")


_TUNNEL_COLUMNS = ("tunnel", "state", "sent", "received", "again", "rtt us", "window", "dropped")
_GUEST_COLUMNS = (
    "guest",
    "vni",
    "from it",
    "to it",
    "recovered",
    "marked",
    "plain",
    "waiting",
    "dropped",
)
_CLASS_COLUMNS = (
    *("vni", "class", "to", "sent", "Mbit/s", "rtt us", "wait us", "again %", "queue", "in flight"),
    "window",
)
_DROPPED = ("aborted", "malformed", "foreign_guest", "spoofed_ip", "spoofed_nd", "unknown_guest")
_GUEST_DROPPED = (
    *("malformed", "too_long", "spoofed_mac", "spoofed_ip", "spoofed_arp", "spoofed_nd"),
    *("unanswered", "group", "unknown_guest", "other_protocol", "no_tunnel", "crowded"),
    *("not_sent", "overrun", "tap_drops", "ring_drops"),
)
_REFUSED = (
    *("unknown_host", "bad_vxlan", "refused", "silent", "strangers", "too_many", "no_answer"),
    *("engine_drop_unknown_qp", "engine_drop_foreign_addr", "engine_drop_icrc"),
)


def _tunnels(card: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, row in card["hosts"].items():
        yield {
            "tunnel": name,
            "state": card["tunnels"].get(name),
            "sent": row["tx_recovered"] + row["tx_plain"],
            "received": row["rx_recovered"] + row["rx_plain"],
            "again": row["retransmits"],
            "rtt us": round(row["rtt_ns"] / 1000),
            "window": row["cwnd_bytes"],
            "dropped": _nonzero(row, _DROPPED),
        }


def _guests(card: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for device, row in card["guests"].items():
        yield {
            "guest": device,
            "vni": row["vni"],
            "from it": row["rx_frames"],
            "to it": row["tx_frames"],
            "recovered": row["recovered"],
            "marked": row["marked"],
            "plain": row["plain"],
            "waiting": row["held_chunks"],
            "dropped": _nonzero(row, _GUEST_DROPPED),
        }


def _classes_of(card: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """(VNI, class, other host, counters) of what has sent or wants to."""
    for vni, tenant in card.get("tenants", {}).items():
        for name, of_class in tenant["classes"].items():
            for peer, row in of_class["hosts"].items():
                yield vni, name, peer, row


def _classes(
    card: Mapping[str, Any], rates: Mapping[tuple[str, ...], float]
) -> Iterator[dict[str, Any]]:
    for vni, name, peer, row in _classes_of(card):
        rate = rates.get((card["host"], vni, name, peer))
        again = 100 * row["retransmits"] / row["packets"] if row["packets"] else 0.0
        yield {
            "vni": vni,
            "class": name,
            "to": peer,
            "sent": row["tx_frames"],
            "Mbit/s": "-" if rate is None else f"{rate:.2f}",
            "rtt us": round(row["rtt_ns"] / 1000),
            "wait us": round(row["wait_ns"] / 1000),
            "again %": f"{again:.2f}",
            "queue": row["queued_bytes"],
            "in flight": row["inflight_bytes"],
            "window": row["cwnd_bytes"],
        }


def _rates_mbps(now: Look, before: Look) -> dict[tuple[str, ...], float]:
    """Nothing is known of a tunnel that began to send meanwhile, or to count anew."""
    seconds, past = now.time_s - before.time_s, before.sent_bytes()
    return {
        key: 8e-6 * (sent - past[key]) / seconds
        for key, sent in now.sent_bytes().items()
        if seconds > 0 and sent >= past.get(key, sent + 1)
    }


def _nonzero(row: Mapping[str, int], names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}={row[name]}" for name in names if row.get(name))
