# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Logging in to the machines of lane ssh; every reason why that fails is one line with a hint."""

from __future__ import annotations

import re
import shlex
import socket
from pathlib import Path
from typing import Any

from datapath import foreign
from datapath.errors import CapabilityError, DatapathError, LocalError
from datapath.lanes.remote import Connection, openssh
from datapath.lanes.remote.connection import import_asyncssh
from datapath.spelling import did_you_mean

_NAME = re.compile(r"(?:(?P<user>[^@]+)@)?\[?(?P<host>[^\]@]+?)\]?(?::(?P<port>\d+))?")
_CONNECT_TIMEOUT_S = 20


def log_in(target: str, label: str, config: Path | None) -> Connection:
    """Log in to a machine; CapabilityError or LocalError when that does not work.

    target: as in topology.machines.  label: its name in errors.  config: instead of ~/.ssh/config.
    """
    asyncssh = import_asyncssh()
    by_hand = f"ssh {f'-F {config} ' if config else ''}{target} true"
    known = openssh.settings(parse_target(target)["host"], config) or {}
    refused: list[tuple[str, str, int]] = []
    try:
        return Connection(label, _login(target, config, known, refused), sudo=True)
    except asyncssh.HostKeyNotVerifiable as error:
        raise _host_key(label, by_hand, known, refused, error) from None
    except asyncssh.PermissionDenied:
        raise CapabilityError(
            f"{label} refuses the login",
            hint=f"this has to work without a password: {by_hand}",
        ) from None
    except (asyncssh.ConfigParseError, asyncssh.KeyImportError, UnicodeError) as error:
        raise LocalError(f"{label}: {error}", hint="see topology.ssh_config") from None
    except FileNotFoundError as error:
        raise LocalError(
            f"{label}: there is no file {error.filename}",
            hint=f"its ssh configuration names it; try: {by_hand}",
        ) from None
    except socket.gaierror:
        raise _no_address(target, label, config, known, by_hand) from None
    except (OSError, TimeoutError, asyncssh.Error) as error:
        words = str(error) or f"no answer in {_CONNECT_TIMEOUT_S} s"
        raise CapabilityError(
            f"{label} cannot be reached: {words}", hint=f"try: {by_hand}"
        ) from None


def _login(
    target: str,
    config: Path | None,
    known: openssh.Settings,
    refused: list[tuple[str, str, int]],
) -> dict[str, Any]:
    """Options for asyncssh.connect().  refused: gets name, address and port of unknown keys."""
    asyncssh = import_asyncssh()
    login = {**parse_target(target), "connect_timeout": _CONNECT_TIMEOUT_S}
    if config is not None:
        login["config"] = [str(config)]
    if not known:
        return login
    login["known_hosts"] = openssh.known_hosts(known)
    keys = openssh.identity_files(known)
    if keys is not None:
        login |= {"client_keys": keys, "ignore_encrypted": True}
    trusting = not openssh.checks_host_keys(known)

    class Client(asyncssh.SSHClient):  # type: ignore[misc, name-defined]
        def validate_host_public_key(self, host: str, addr: str, port: int, _: object) -> bool:
            refused.append((host, addr, port))
            return trusting

    login["client_factory"] = Client
    return login


def _host_key(
    label: str,
    by_hand: str,
    known: openssh.Settings,
    refused: list[tuple[str, str, int]],
    error: Exception,
) -> DatapathError:
    """For a host key that is not a known one."""
    if known and not refused:  # a revoked key, or a certificate that is not valid
        return CapabilityError(f"{label}: {error}", hint=f"try: {by_hand}")
    elsewhere = openssh.elsewhere_known(known, *refused[-1]) if refused else None
    if elsewhere is None:
        return CapabilityError(
            f"{label}: its host key is not known",
            hint=f"once by hand: {by_hand}; or StrictHostKeyChecking no in the ssh_config",
        )
    name, path = elsewhere
    return CapabilityError(
        f"{label}: its host key is not the one that {path} has for {name}: the machine has a new "
        "key, or another machine answers in its place",
        hint="find out which; once you are sure that it is the right machine: "
        f"{shlex.join(['ssh-keygen', '-f', str(path), '-R', name])}, then by hand: {by_hand}",
    )


def _no_address(
    target: str, label: str, config: Path | None, known: openssh.Settings, by_hand: str
) -> DatapathError:
    """For a name that cannot be looked up: the machine's, or one that its configuration names."""
    host = parse_target(target)["host"]
    for key, title in (("proxyjump", "ProxyJump"), ("hostname", "HostName")):
        name = openssh.setting(known, key)
        if name and name.lower() != host.lower():
            return LocalError(
                f"{label}: its {title} {name} cannot be looked up",
                hint=f"correct it in {config or '~/.ssh/config'}, or try: {by_hand}",
            )
    aliases = _aliases(config)
    if host in aliases:
        return LocalError(
            f"{label}: {host} cannot be looked up, and the configuration has no HostName for it",
            hint=f"add HostName in {config or '~/.ssh/config'}, or try: {by_hand}",
        )
    return LocalError(
        f"{label} is neither a name in the ssh configuration nor a host that can be looked up",
        hint=did_you_mean(target, aliases, "there are") or f"try: {by_hand}",
    )


def parse_target(target: str) -> dict[str, Any]:
    """user@host:port, of which only the host need be there, as asyncssh calls them."""
    name = _NAME.fullmatch(target)
    assert name is not None
    login: dict[str, Any] = {"host": name["host"]}
    if name["user"]:
        login["username"] = name["user"]
    if name["port"]:
        login["port"] = int(name["port"])
    return login


def _aliases(config: Path | None) -> list[str]:
    """Names that the configuration gives to hosts."""
    path = config or Path.home() / ".ssh" / "config"
    try:
        text = foreign.read_bytes(path).decode("utf-8", "replace")
    except (OSError, foreign.Refused):
        return []
    lines = re.findall(r"^\s*Host[\s=]+(.+)$", text, re.MULTILINE | re.IGNORECASE)
    return [word for line in lines for word in line.split() if not re.search(r"[*?!]", word)]
