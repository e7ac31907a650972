# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Any algorithm, compiled, under any legal events: its outputs stay within bounds.

Parameters are data in the flow record, so each example also draws legal values
for all of them without compiling again.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapath.cc import CompiledAlgorithm, Field, compile_algorithm, registry
from datapath.cc.drivers import NativeAlgorithm
from datapath.cc.exercise import HOUR_NS, KINDS, Step, Transport, violations

SHARE = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])

STEP = st.builds(
    Step,
    kind=st.sampled_from(["ack"] * 6 + list(KINDS)),
    wait_ns=st.integers(0, 10**9) | st.integers(0, 10**5),
    use=SHARE,
    share=SHARE,
    marked=SHARE,
    sampled=st.booleans(),
    hosts=SHARE,
    hops=st.integers(0, 8),
    queue_bytes=st.floats(0, 1e8),
    path=st.integers(0, 63),
)
STEPS = st.lists(STEP, max_size=60)
IDLE_HOUR = Step(kind="idle", wait_ns=HOUR_NS)


def value(field: Field) -> st.SearchStrategy[float]:
    """A legal value of a parameter, or its default."""
    scale = 1000 * max(abs(field.default), 1)
    low = -scale if field.min is None else field.min
    high = max(scale, low) if field.max is None else field.max
    if field.kind == "float":
        return st.just(field.default) | st.floats(low, high)
    if field.kind == "bool":
        return st.sampled_from([0, 1])
    return st.just(field.default) | st.integers(int(low), int(high))


@pytest.fixture(scope="module", params=list(registry()))
def compiled(request: pytest.FixtureRequest) -> CompiledAlgorithm:
    return compile_algorithm(request.param, {})


@given(data=st.data())
def test_bounds_hold(compiled: CompiledAlgorithm, data: st.DataObject) -> None:
    driver = NativeAlgorithm(compiled)
    params = {item.name: data.draw(value(item), item.name) for item in driver.algorithm.params}
    for name, drawn in params.items():
        setattr(driver.flow, name, drawn)
    mss_bytes = data.draw(st.sampled_from([256, 1024, 4096]), "mss")
    transport = Transport(
        driver,
        mss_bytes=mss_bytes,
        max_cwnd_bytes=mss_bytes * data.draw(st.sampled_from([1, 128, 2048]), "window"),
        line_rate_bps=data.draw(st.sampled_from([0.0, 1e9, 400e9]), "rate"),
        paths=data.draw(st.sampled_from([1, 8, 64]), "paths"),
        now_ns=data.draw(st.sampled_from([0, 1, 10**18]), "start"),
    )
    assert violations(driver) == []
    for step in [*data.draw(STEPS, "before"), IDLE_HOUR, *data.draw(STEPS, "after")]:
        transport.step(step)
        assert violations(driver) == []
    for name, drawn in params.items():
        assert getattr(driver.flow, name) == drawn
