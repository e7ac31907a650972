# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Claims and the verdict of a result folder, as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from datapath.report import display
from datapath.report.folder import ResultFolder, axis_text, mapping, sequence
from datapath.spelling import counted

Row = dict[str, Any]


def runs(result: ResultFolder) -> tuple[int, int]:
    """(runs that went well, all runs here)."""
    every = result.frame.drop_duplicates(["point", "repetition"])
    return int((every["status"] == "ok").sum()), len(every)


def rows(result: ResultFolder) -> list[Row]:
    """The claims in the order of the file, their numbers as text."""
    return [_row(result, index, claim) for index, claim in enumerate(result.claims or [])]


def verdict(result: ResultFolder, claims: Sequence[Row]) -> Row:
    """One line for the top: kind is good, bad or open."""
    failed = sum(not claim["passed"] for claim in claims)
    well, total = runs(result)
    lost = total - well
    told = _told(lost, total)
    if not total:
        return {"kind": "open", "text": "No result yet", "detail": "no run has finished"}
    if failed:
        text = (
            "The one claim failed"
            if len(claims) == 1
            else f"{failed} of {len(claims)} claims failed"
        )
        return {"kind": "bad", "text": text, "detail": told}
    if not well:
        return {"kind": "bad", "text": "All runs failed", "detail": "there is nothing to compare"}
    if lost:
        held = f"{_all(len(claims))} held, but " if claims else ""
        return {"kind": "bad", "text": f"{held}{told}".capitalize(), "detail": ""}
    if total < result.runs_planned:
        text = f"Not finished: {total} of {result.runs_planned} runs"
        detail = "all of them succeeded" if total > 1 else "it succeeded"
        return {"kind": "open", "text": text, "detail": detail}
    if claims:
        weak = sum(claim["verdict"] == "not shown" for claim in claims)
        but = (
            "" if not weak else ", but is not shown" if len(claims) == 1 else f", {weak} not shown"
        )
        text = f"{_all(len(claims))} passed{but}".capitalize()
        return {"kind": "open" if weak else "good", "text": text, "detail": told}
    why = (
        "claims were not judged" if result.report.get("expect") else "the experiment claims nothing"
    )
    return {"kind": "open", "text": told.capitalize(), "detail": why}


def _told(lost: int, total: int) -> str:
    if total == 1:
        return "the one run failed" if lost else "the one run succeeded"
    return f"{lost} of {total} runs failed" if lost else f"all {total} runs succeeded"


def _all(count: int) -> str:
    return {1: "the one claim", 2: "both claims"}.get(count, f"all {count} claims")


def _row(result: ResultFolder, index: int, claim: Mapping[str, Any]) -> Row:
    """A claim as shown; the bound comes from the experiment when claims.json has none."""
    asked = sequence(result.report.get("expect"))
    wanted = {**(mapping(asked[index]) if index < len(asked) else {}), **claim}
    metric = str(wanted.get("metric", ""))
    relative = wanted.get("ratio_to") is not None
    unit = "1" if relative else str(wanted.get("unit") or _unit_of(result, metric))
    interval = sequence(wanted.get("interval"))
    passed = bool(wanted.get("pass"))
    reason, doubt = display.reason(wanted.get("reason")), _doubt(wanted)
    name = "" if relative else metric
    return {
        "passed": passed,
        "verdict": _kind(wanted, passed=passed),
        "settled": _kind(wanted, passed=passed) in ("shown", "pass"),
        "doubt": doubt,
        "title": wanted.get("title") or _title(wanted),
        "metric": display.metric_title(metric) + (", ratio" if relative else ""),
        "where": where_text(wanted.get("where")),
        "against": where_text(_differing(wanted.get("ratio_to"), wanted.get("where"))),
        "measured": _measured(wanted.get("measured"), unit, name),
        "interval": _interval(interval, unit, name),
        "n": wanted.get("n"),
        "bound": _bound(wanted, unit, name),
        "reason": "; ".join(part for part in reason.split("; ") if part not in doubt.split("; ")),
    }


def _kind(claim: Mapping[str, Any], *, passed: bool) -> str:
    """shown, not shown or fail; pass: an older folder, whose claims nobody held against that."""
    if not passed:
        return "fail"
    if "shown" not in claim:
        return "pass"
    return "shown" if claim["shown"] else "not shown"


def _doubt(claim: Mapping[str, Any]) -> str:
    """Why the runs do not decide, and about how many more repetitions would."""
    doubt, more = str(claim.get("doubt") or ""), claim.get("more_repetitions")
    if not doubt:
        return ""
    if not isinstance(more, int):
        return f"{doubt}; no number of repetitions in reach would decide"
    about = "" if doubt.startswith("n = ") else "about "
    return f"{doubt}; {about}{counted(more, 'more repetition')} would decide"


def _differing(reference: object, where: object) -> Row:
    """The axes of the reference that are not as in `where`."""
    same = mapping(where)
    return {k: v for k, v in mapping(reference).items() if same.get(k) != v}


def _unit_of(result: ResultFolder, metric: str) -> str:
    rows = result.frame[(result.frame["metric"] == metric) & (result.frame["unit"] != "")]
    return str(rows["unit"].iloc[0]) if len(rows) else ""


def _measured(value: Any, unit: str, metric: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return display.DASH if value is None else str(value)
    return display.quantity(float(value), unit, metric)


def _interval(ends: Sequence[Any], unit: str, metric: str) -> str:
    """`3.20 to 3.40 µs`; a dash where there is none (a single run)."""
    known = [e for e in ends if isinstance(e, (int, float)) and math.isfinite(e)]
    if len(known) != 2:
        return display.DASH
    scale = display.scale_for(known, unit, metric)
    text = " to ".join(display.number(end / scale.factor) for end in known)
    return f"{text}\N{NO-BREAK SPACE}{scale.unit}" if scale.unit else text


def _bound(claim: Mapping[str, Any], unit: str, metric: str) -> str:
    """`≥ 0.9`; numbers are in base units, text is as the experiment has it."""
    bound = claim.get("bound")
    ends = mapping(bound) or {key: claim.get(key) for key in ("min", "max")}
    signs = {"min": "≥", "max": "≤"}
    parts = [
        f"{sign} {_limit(ends[key], unit, metric)}"
        for key, sign in signs.items()
        if ends.get(key) is not None
    ]
    return " and ".join(parts) or _measured(bound, unit, metric)


def _limit(value: Any, unit: str, metric: str) -> str:
    """A bound, with no more digits than it was written with."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    scale = display.scale_for([float(value)], unit, metric)
    return f"{display.tick(value / scale.factor)}\N{NO-BREAK SPACE}{scale.unit}".strip()


def _title(claim: Mapping[str, Any]) -> str:
    metric = display.metric_title(str(claim.get("metric", "a metric")))
    where = where_text(claim.get("where"))
    return f"{metric} at {where}" if where else metric


def where_text(where: object) -> str:
    return ", ".join(f"{axis} = {_choice(value)}" for axis, value in mapping(where).items())


def _choice(value: object) -> str:
    return " or ".join(axis_text(v) for v in sequence(value)) or axis_text(value)
