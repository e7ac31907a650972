# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The compiled code does what the Python code does, to the last bit."""

from __future__ import annotations

import pytest

from datapath.cc import compile_algorithm, registry
from datapath.cc.drivers import NativeAlgorithm, PythonAlgorithm, new_ack, new_loss
from datapath.cc.exercise import difference, random_steps, replay

from .conftest import WriteAlgorithm


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", list(registry()))
def test_compiled_equals_python(name: str, seed: int) -> None:
    native = NativeAlgorithm(compile_algorithm(name, {}))
    python = PythonAlgorithm(name, {})
    steps = list(random_steps(seed, 1500))
    both = zip(replay(native, steps), replay(python, steps), strict=True)
    for number, violations in enumerate(both):
        assert violations == ([], []), f"after step {number}"
        assert not difference(native, python), f"after step {number}"
    assert native.flow.delivered_bytes > 0


def test_all_members_and_functions(write: WriteAlgorithm) -> None:
    """Members of every record, both kinds of state, helpers, loops and libm."""
    path = write(
        """
        WEIGHTS = (0.5, 0.25, 0.125)

        def mix(flow, x):
            flow.calls += 1
            return math.exp(-x) + math.log1p(x) * math.sqrt(x) + math.atan2(x, 2.0) + x ** 1.7

        def keep(flow, x):
            flow.rates[0] *= 0.75
            return x + flow.rates[0]

        @algorithm("mine")
        class Mine:
            gain: float = param(0.3)
            deep: bool = param(True)
            calls: int = state(3)
            sum: float = state()
            same_bytes: float = state()
            rates: list[float] = state(0.5, length=4)
            turns: list[int] = state(length=2)

            def on_init(flow):
                flow.cwnd_bytes = flow.mss_bytes

            def on_ack(flow, ack):
                for i in range(int(ack.n_hops)):
                    hop = ack.hop[i]
                    flow.sum += hop.queue_bytes * WEIGHTS[i % 3] + hop.tx_bytes / hop.rate_bps
                    flow.sum -= hop.ts_ns // 7.0
                if flow.deep and not ack.app_limited:
                    flow.sum += mix(flow, ack.rtt_ns / 1e5) % 3.0 + flow.gain
                flow.turns[0] += 1
                flow.same_bytes += ack.acked_bytes
                flow.turns[1] = int(ack.now_ns) % 7
                flow.rates[flow.turns[0] % len(flow.rates)] = keep(flow, ack.acked_bytes)
                for i in range(len(flow.rates)):
                    flow.sum += flow.rates[i] / (i + 1)
                flow.sum = flow.sum % 1e6
                flow.cwnd_bytes = flow.mss_bytes * (1 + flow.calls % 100)

            def on_loss(flow, loss):
                flow.sum -= loss.lost_bytes / (1 + loss.inflight_bytes)

            def on_timeout(flow, now_ns):
                flow.calls = -(flow.calls // 2)
                flow.sum += now_ns / (flow.sum - flow.sum)  # infinity or NaN, no exception
                flow.sum = 1.0 if flow.sum != flow.sum or flow.sum > 1e300 else flow.sum
        """
    )
    native, python = NativeAlgorithm(compile_algorithm(path, {})), PythonAlgorithm(path, {})
    assert native.flow.calls == python.flow.calls == 3
    steps = list(random_steps(5, 1500))
    for _ in zip(replay(native, steps), replay(python, steps), strict=True):
        assert not difference(native, python, ulps=2)


def test_members_can_be_set_by_name() -> None:
    ack, loss = new_ack(now_ns=1, n_hops=2), new_loss(lost_bytes=3)
    ack.hop[1].ts_ns = 9
    assert (ack.now_ns, ack.n_hops, ack.rtt_ns, ack.hop[1].ts_ns) == (1, 2, 0, 9)
    assert loss.lost_bytes == 3
    with pytest.raises(AttributeError):
        new_ack(now=1)


def test_flows_of_one_object_are_separate() -> None:
    compiled = compile_algorithm("fixed", {"window_bytes": 5000})
    one, other = NativeAlgorithm(compiled), NativeAlgorithm(compiled)
    for flow in (one, other):
        flow.flow.mss_bytes, flow.flow.max_cwnd_bytes = 1000, 1e6
    one.on_init()
    assert one.flow.cwnd_bytes == 5000
    assert other.flow.cwnd_bytes == 0
