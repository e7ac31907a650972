#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How fast packet simulators are, on one core and on the same dumbbell, in one run.

    python experiments/bench/simulators.py --json simulators.json

ns-3 comes as the wheel of PyPI, htsim as source from its repository; both are built once in the
cache folder, against programs beside this file.  --ns3 and --htsim take copies that are there
already.  Rounds alternate between the simulators, so that a slow moment of the machine meets
all of them, and what counts is CPU time of the event loop alone.

The network: PAIRS senders on the left, as many receivers on the right, links of 10 Gbit/s and
1 us to the hosts, a shared link of 40 Gbit/s and 10 us with a drop-tail queue.  Each sender has
one flow of BYTES with packets of 1024 bytes and NewReno.  ns-3 and htsim run their TCP; ours
runs the RC engine, whose receiver acknowledges up to 16 packets at once, where htsim's TCP
acknowledges each and ns-3's every second one.  So two rates are told:

    crossings     frames that have crossed a link, data and acknowledgements, each second
    data packets  that have been delivered from end to end, each second
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from datapath.cachedir import root as cache_root  # noqa: E402  (after the path)

PROGRAMS = Path(__file__).parent / "simulators"
NS3 = "ns3==3.44.*"
HTSIM = "https://github.com/Broadcom/csg-htsim"
HTSIM_COMMIT = "841d9e7be46bb968eece766aa4b6c044c7799f67"
PAYLOAD = 1024
EDGE_MBPS, NECK_MBPS = 10_000, 40_000
EDGE_NS, NECK_NS = 1_000, 10_000
QUEUE_PACKETS = 500


@dataclass(frozen=True)
class Measured:
    """One run: CPU seconds of the event loop, frames over links, data packets delivered."""

    seconds: float
    crossings: int
    data_packets: int


def run(argv: Sequence[str | Path]) -> str:
    """Output of a program; the program's own words when it fails."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{argv[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def fresh(program: Path, source: Path) -> bool:
    return program.exists() and program.stat().st_mtime > source.stat().st_mtime


# --- the three simulators ------------------------------------------------------------------------


def build_ns3(cache: Path, wheel: Path | None) -> Path:
    """The program, linked to the libraries of the wheel."""
    folder = cache / "ns3"
    if not (folder / "ns3" / "include").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        if wheel is None:
            run([sys.executable, "-m", "pip", "download", "--no-deps", "-d", folder, NS3])
            wheel = next(folder.glob("ns3-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    libraries = folder / "ns3" / "lib64"
    source, program = PROGRAMS / "dumbbell_ns3.cc", cache / "dumbbell_ns3"
    if not fresh(program, source):
        used = ("applications", "core", "internet", "network", "point-to-point", "traffic-control")
        found = [next(libraries.glob(f"libns3*-{name}.so")) for name in used]
        run(
            [
                *("g++", "-std=c++20", "-O3", "-w"),
                *("-DNS3_BUILD_PROFILE_RELEASE", "-DNS3_LOG_ENABLE", "-DNS3_ASSERT_ENABLE"),
                f"-I{folder / 'ns3' / 'include'}",
                "-o",
                program,
                source,
                *found,
                *(f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"),
            ]
        )
    return program


def build_htsim(cache: Path, given: Path | None) -> Path:
    """The program, linked to htsim's own library."""
    folder = given or cache / "csg-htsim"
    if not folder.is_dir():
        run(["git", "clone", "--quiet", HTSIM, folder])
        run(["git", "-C", folder, "checkout", "--quiet", HTSIM_COMMIT])
    library = folder / "sim" / "libhtsim.a"
    if not library.exists():
        flags = "CFLAGS=-w -std=c++11 -O3"
        run(["make", "-C", folder / "sim", "-j2", "libhtsim.a", flags])
    source, program = PROGRAMS / "dumbbell_htsim.cc", cache / "dumbbell_htsim"
    if not fresh(program, source):
        include = f"-I{folder / 'sim'}"
        run(["g++", "-std=c++11", "-O3", "-w", include, "-o", program, source, library])
    return program


def measure_program(program: Path, pairs: int, size: int, rates: tuple[str, str]) -> Measured:
    """A program of simulators/: its last line is what it measured."""
    numbers = map(str, (pairs, size, PAYLOAD))
    last = run([program, *numbers, *rates, str(QUEUE_PACKETS)]).strip().splitlines()[-1].split()
    return Measured(float(last[0]), int(last[1]), int(last[2]))


def measure_ours(pairs: int, size: int) -> Measured:
    """The simulator of datapath.fabric, in a process of its own."""
    code = f"import runpy; runpy.run_path({str(Path(__file__))!r})['ours']({pairs}, {size})"
    last = run([sys.executable, "-c", code]).split()
    return Measured(float(last[0]), int(last[1]), int(last[2]))


def ours(pairs: int, size: int) -> None:
    """Prints what the programs print."""
    from datapath.cc import compile_algorithm
    from datapath.fabric import flows as traffic
    from datapath.fabric.engine_options import EngineOptions
    from datapath.fabric.links import Link
    from datapath.fabric.simulator import Simulation
    from datapath.fabric.topology import Dumbbell

    frame = PAYLOAD + 118  # with all headers of a WRITE
    network = Dumbbell(
        pairs,
        edge=Link(EDGE_MBPS * 10**6, EDGE_NS),
        bottleneck=Link(NECK_MBPS * 10**6, NECK_NS, limit_bytes=QUEUE_PACKETS * frame),
    )
    rows = traffic.empty(pairs)
    rows["src"], rows["dst"] = range(pairs), range(pairs, 2 * pairs)
    rows["bytes"] = size
    simulation = Simulation(network, transport=EngineOptions(path_mtu=PAYLOAD, ecn=False))
    algorithm = compile_algorithm("newreno")
    result = simulation.run(rows, algorithm)
    assert (result.flows.rows["delivered_bytes"] == size).all()
    delivered = int(result.flows.rows["delivered_bytes"].sum()) // PAYLOAD
    print(f"{result.cpu_s:.6f} {int(result.links['delivered'].sum())} {delivered}")


# --- the comparison ------------------------------------------------------------------------------


def rates(measured: list[Measured]) -> dict[str, object]:
    """Medians over the rounds, with the lowest and highest."""
    crossings = [m.crossings / m.seconds for m in measured]
    packets = [m.data_packets / m.seconds for m in measured]
    return {
        "crossings_per_s": statistics.median(crossings),
        "crossings_per_s_range": [min(crossings), max(crossings)],
        "data_packets_per_s": statistics.median(packets),
        "data_packets_per_s_range": [min(packets), max(packets)],
        "cpu_s": [m.seconds for m in measured],
        "crossings": measured[0].crossings,
        "data_packets": measured[0].data_packets,
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def show(results: Mapping[str, Mapping[str, object]]) -> None:
    base = results["datapath"]
    print(f"{'simulator':10} {'crossings/s':>22} {'data packets/s':>22} {'ours is':>16}")
    for name, row in results.items():
        cells = []
        ratios = []
        for key in ("crossings_per_s", "data_packets_per_s"):
            value, spread = row[key], row[f"{key}_range"]
            assert isinstance(value, float)
            assert isinstance(spread, list)
            own = base[key]
            assert isinstance(own, float)
            cells.append(f"{value / 1e6:.2f} M ({spread[0] / 1e6:.2f}-{spread[1] / 1e6:.2f})")
            ratios.append(f"{own / value:.2f}x")
        print(f"{name:10} {cells[0]:>22} {cells[1]:>22} {' '.join(ratios):>16}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--bytes", type=int, default=10_000_000, help="of each flow")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ns3", type=Path, metavar="WHEEL", help="a wheel that is there already")
    parser.add_argument("--htsim", type=Path, metavar="DIR", help="sources that are there already")
    parser.add_argument("--cache", type=Path, default=cache_root() / "simulators")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    args = parser.parse_args()
    if not shutil.which("g++"):
        sys.exit("g++ is missing: apt-get install g++")
    args.cache.mkdir(parents=True, exist_ok=True)
    ns3, htsim = build_ns3(args.cache, args.ns3), build_htsim(args.cache, args.htsim)
    mbps = (str(EDGE_MBPS), str(NECK_MBPS))
    named = (f"{EDGE_MBPS}Mbps", f"{NECK_MBPS}Mbps")
    simulators: dict[str, Callable[[], Measured]] = {
        "datapath": lambda: measure_ours(args.pairs, args.bytes),
        "htsim": lambda: measure_program(htsim, args.pairs, args.bytes, mbps),
        "ns-3": lambda: measure_program(ns3, args.pairs, args.bytes, named),
    }
    measured: dict[str, list[Measured]] = {name: [] for name in simulators}
    for index in range(args.rounds):
        for name, measure in simulators.items():
            measured[name].append(measure())
            print(f"round {index}: {name} {measured[name][-1]}", file=sys.stderr)
    results = {name: rates(of_one) for name, of_one in measured.items()}
    show(results)
    if args.json:
        setting = {
            "pairs": args.pairs,
            "bytes": args.bytes,
            "rounds": args.rounds,
            "payload": PAYLOAD,
            "cpu": processor(),
            "ns3": NS3,
            "htsim": HTSIM_COMMIT,
        }
        args.json.write_text(json.dumps({"setting": setting, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
