# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A user's own XDP source: compiled by bcc, attached at each hook, its maps read."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from datapath.errors import DatapathError, LocalError
from datapath.lanes.netns import NetnsNetwork
from datapath.lanes.spec import Topology
from datapath.xdp.user import XdpHook, attach, entry_function
from tests.xdp.conftest import Wire, ipv4, udp

COUNT = """
#include <uapi/linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

struct seen { u64 packets; u64 bytes; };
BPF_HASH(sources, u32, struct seen, 64);
BPF_PERCPU_ARRAY(total, u64, 1);

/* int commented_out(struct xdp_md *ctx) */
int count(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = data;
    struct iphdr *ip = data + sizeof(*eth);
    struct seen zero = {}, *entry;
    int first = 0;
    u64 *all = total.lookup(&first);
    u32 source;

    if (all)
        *all += 1;
    if ((void *)(ip + 1) > end || eth->h_proto != htons(ETH_P_IP))
        return XDP_PASS;
    source = ntohl(ip->saddr);
    entry = sources.lookup_or_try_init(&source, &zero);
    if (!entry)
        return XDP_PASS;
    lock_xadd(&entry->packets, 1);
    lock_xadd(&entry->bytes, ntohs(ip->tot_len));
    return XDP_PASS;
}
"""
HOST0 = str(struct.unpack(">I", bytes([198, 18, 0, 1]))[0])
HOST1 = str(struct.unpack(">I", bytes([198, 18, 0, 2]))[0])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "count.c"
    path.write_text(COUNT)
    return path


@pytest.mark.parametrize(
    ("hook", "sender"), [("host1", 0), ("middle-forward", 0), ("middle-backward", 1)]
)
def test_a_program_sees_the_packets_of_its_hook(
    wire: Wire, source: Path, hook: str, sender: int
) -> None:
    directions = ["forward", "backward"]
    with attach(wire.network, source, hook) as program:
        assert (program.mode, program.reason) == ("native", "")
        for number, direction in enumerate(directions):
            frames = [ipv4(udp(bytes(72)), source=number)] * (5 + number)
            assert wire.send(frames, direction) == frames
        maps = program.maps()
    count = 5 + sender
    seen = {"packets": count, "bytes": 100 * count}
    assert maps["sources"] == {(HOST0, HOST1)[sender]: seen}
    assert sum(maps["total"]["0"]) >= count
    # Detached: the hook is free again, and traffic passes.
    with attach(wire.network, source, hook) as again:
        assert again.maps()["sources"] == {}


class Watched:
    """A network that keeps the processes which it starts at its hooks."""

    def __init__(self, network: NetnsNetwork) -> None:
        self.network = network
        self.started: list[subprocess.Popen[bytes]] = []

    def xdp_hook(self, hook: str) -> XdpHook:
        place = self.network.xdp_hook(hook)

        def start(
            argv: Sequence[str], *, env: Mapping[str, str], stderr: IO[bytes]
        ) -> subprocess.Popen[bytes]:
            self.started.append(place.start(argv, env=env, stderr=stderr))
            return self.started[-1]

        return replace(place, start=start)


def test_a_process_that_has_died_is_told(wire: Wire, source: Path) -> None:
    watched = Watched(wire.network)
    with attach(watched, source, "host1") as program:
        (process,) = watched.started
        process.kill()
        process.wait()
        with pytest.raises(DatapathError, match="the XDP program's process ended"):
            program.maps()


TEXTS = """
struct named { char comm[16]; char one; u64 packets; };
struct mine { char comm[16]; u32 id; };
BPF_HASH(values, u32, struct named, 4);
BPF_HASH(keys, struct mine, u64, 4);

int texts(struct xdp_md *ctx)
{
    struct named value = {.comm = "a\\xff", .one = 7, .packets = 3};
    struct mine key = {.comm = "abc", .id = 5};
    u64 count = 9;
    u32 first = 1;

    values.update(&first, &value);
    keys.update(&key, &count);
    return XDP_PASS;
}
"""


def test_characters_of_maps_are_text(wire: Wire, tmp_path: Path) -> None:
    source = tmp_path / "texts.c"
    source.write_text(TEXTS)
    with attach(wire.network, source, "host1") as program:
        wire.send([ipv4(udp(bytes(72)))])
        maps = program.maps()
    assert maps["values"]["1"] == {"comm": "a\\xff", "one": 7, "packets": 3}
    assert maps["keys"] == {'{"comm": "abc", "id": 5}': 9}


LARGE = """
BPF_ARRAY(sparse, u64, 1000000);
BPF_ARRAY(dense, u64, 10000);
BPF_PERCPU_ARRAY(each, u64, 5000);

int large(struct xdp_md *ctx)
{
    int last = 999999;
    u64 one = 1;

    sparse.update(&last, &one);
    last = 4999;
    each.update(&last, &one);
    for (int index = 0; index < 5000; index++) {
        last = index;
        dense.update(&last, &one);
    }
    return XDP_PASS;
}
"""


def test_of_large_maps_so_much_is_told_as_one_can_look_at(wire: Wire, tmp_path: Path) -> None:
    source = tmp_path / "large.c"
    source.write_text(LARGE)
    with attach(wire.network, source, "host1") as program:
        wire.send([ipv4(udp(bytes(72)))])
        maps, notes = program.read()
    assert maps["sparse"] == {"999999": 1}
    assert sum(maps["each"].pop("4999")) >= 1
    assert maps["each"] == {}
    assert maps["dense"] == {str(index): 1 for index in range(4096)}
    assert notes == {"dense": "only 4096 of its entries are kept"}


def test_a_map_that_the_kernel_refuses_is_named(wire: Wire, source: Path) -> None:
    source.write_text(COUNT + "\nBPF_LPM_TRIE(routes, u64, u64);\n")
    with (
        pytest.raises(LocalError, match="the kernel refuses map routes: Invalid argument"),
        attach(wire.network, source, "host1"),
    ):
        pass


def test_one_program_at_a_hook(wire: Wire, source: Path) -> None:
    with (
        attach(wire.network, source, "host1"),
        pytest.raises(LocalError, match="has an XDP program already"),
        attach(wire.network, source, "host1"),
    ):
        pass


def test_mistakes_are_shown_where_they_are(root: None, tmp_path: Path) -> None:
    def written(text: str) -> Path:
        path = tmp_path / "mine.c"
        path.write_text(text)
        return path

    def error(path: Path, hook: str = "host0") -> str:
        with pytest.raises(LocalError) as caught, attach(network, path, hook):
            pass
        assert caught.value.hint
        return str(caught.value)

    with NetnsNetwork(Topology()) as network:
        text = COUNT.replace("*all += 1;\n", "*all += 1;\n    nonsense;\n")
        line = text[: text.index("nonsense")].count("\n") + 1
        message = error(written(text))
        assert f"mine.c:{line}:5: error: use of undeclared identifier 'nonsense'" in message
        assert "invalid access to packet" in error(
            written(COUNT.replace("(void *)(ip + 1) > end ||", ""))
        )
        assert "hooks are host0, host1" in error_hint(network, written(COUNT))


def error_hint(network: NetnsNetwork, path: Path) -> str:
    with pytest.raises(LocalError, match="no XDP hook host9") as caught:
        attach(network, path, "host9").__enter__()
    return caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int helper(int x) { return x; }", "has no function"),
        ("int a(struct xdp_md *c){}\nint b(struct xdp_md *c){}", r"has 2 functions \(a, b\)"),
    ],
)
def test_there_must_be_one_entry(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.c"
    path.write_text(text)
    with pytest.raises(LocalError, match=words):
        entry_function(path)


def test_a_missing_source(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file"):
        entry_function(tmp_path / "none.c")
