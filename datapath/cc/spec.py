# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `cc` section of files: an algorithm and its parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from datapath import foreign
from datapath.cc import bpf, loading
from datapath.errors import LocalError
from datapath.units import parse_bit_rate, parse_bytes, parse_duration_ns, parse_fraction


class Cc(BaseModel):
    """An algorithm with its parameters.

    A parameter may stand under `params` or beside `algo`; a string with a unit is converted to
    the unit that ends the parameter's name (`target_delay_ns: 50us`).
    """

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": True})

    algo: str = Field(
        "fixed",
        min_length=1,
        description="A registered algorithm (`dpctl cc list`), or ./file.py:Class.",
    )
    params: dict[str, bool | int | float] = Field(
        default_factory=dict, description="Parameters of the algorithm, by name."
    )

    @model_validator(mode="before")
    @classmethod
    def _gather_params(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        params = value.get("params", {})
        if not isinstance(params, dict):
            return value
        beside = {key: v for key, v in value.items() if key not in cls.model_fields}
        twice = sorted(set(beside) & set(params))
        if twice:
            raise ValueError(f"{twice[0]} is given beside algo and under params")
        gathered = {key: cc_number(key, v) for key, v in (params | beside).items()}
        named = {key: v for key, v in value.items() if key in cls.model_fields}
        return named | {"params": gathered}

    @property
    def file(self) -> str | None:
        """The source file when the algorithm is the user's own (`./file.py:Class`), as written."""
        return loading.file_of(self.algo)

    def located(self, folder: Path) -> str:
        """`algo` with its file relative to `folder`, as datapath.cc takes it."""
        if self.file is None:
            return self.algo
        file = foreign.beside(folder, self.file).resolve()
        return f"{file}{self.algo.removeprefix(self.file)}"


class HostCc(Cc):
    """Congestion control of hosts: an algorithm for devices dp and rxe, or that of their TCP."""

    algo: str = Field(
        "fixed",
        min_length=1,
        description="Devices dp and rxe: a registered algorithm (`dpctl cc list`), or "
        "./file.py:Class. rxe is not paced with fixed, the default.",
    )
    tcp: str | None = Field(
        None,
        min_length=1,
        description="Devices kernel and siw: the TCP congestion control of the hosts' kernels, "
        "by name (cubic, bbr, dp_copa), or ./file.bpf.c. Unset: the kernel's default.",
    )

    @field_validator("tcp")
    @classmethod
    def _check_tcp(cls, value: str | None) -> str | None:
        if value is not None:
            bpf.check_name(value)
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> HostCc:
        if self.tcp is not None and (self.algo != "fixed" or self.params):
            raise ValueError("tcp stands alone: algo and parameters are for devices dp and rxe")
        return self

    @property
    def simulated(self) -> Cc:
        """This section as the simulator runs it: with an algorithm of ours in the place of TCP's.

        LocalError for an algorithm of TCP that no included one stands for.
        """
        if self.tcp is None:
            return self
        if self.tcp not in STAND_INS:
            raise LocalError(
                f"lane sim has no TCP, and nothing that stands for its {self.tcp}",
                hint=f"algorithms of ours stand for {', '.join(STAND_INS)}; or give the flows "
                "cc: {algo: NAME}",
            )
        return Cc(algo=STAND_INS[self.tcp])

    @property
    def tcp_file(self) -> str | None:
        """The C file when `tcp` is the user's own, as written."""
        return self.tcp if self.tcp is not None and bpf.is_file(self.tcp) else None


STAND_INS = {
    "cubic": "cubic",
    "reno": "newreno",
    "bbr": "bbr",
    "dctcp": "dctcp",
    "dp_copa": "copa",
}
"""By algorithms of TCP: those that stand for them in lane sim, which has no kernel."""

_UNITS = {
    "_ns": parse_duration_ns,
    "_bps": parse_bit_rate,
    "_bytes": parse_bytes,
}


def cc_number(name: str, value: Any) -> Any:
    """A parameter as a number; strings are read in the unit that the name ends with."""
    if not isinstance(value, str):
        return value
    for suffix, parse in _UNITS.items():
        if name.endswith(suffix):
            return parse(value)
    if value.strip().endswith("%"):
        return parse_fraction(value)
    raise ValueError(f"{name}: {value!r} is not a number")
