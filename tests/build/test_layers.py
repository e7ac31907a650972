# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Imports, includes and symbols point only down; layers.py has the rules."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from datapath.debian import packages
from datapath.lanes.lane import LANES
from datapath.lanes.spec import Topology
from datapath.native import paths
from datapath.workloads import REGISTRY
from tests.build import layers

PACKAGE = paths.PACKAGE


@pytest.mark.parametrize("folder", layers.MAY_INCLUDE)
def test_c_includes_point_down(folder: str) -> None:
    assert layers.c_files(PACKAGE, folder)
    assert layers.wrong_includes(PACKAGE, folder) == []


def test_each_folder_with_c_has_its_rule() -> None:
    assert layers.folders_without_a_rule(PACKAGE) == []


def test_what_qps_share_knows_no_type_of_qp() -> None:
    assert layers.knowers_of_qp_types(PACKAGE) == []


@pytest.mark.parametrize("folder", layers.PURE)
def test_the_engine_includes_no_system_header(folder: str) -> None:
    assert layers.system_headers(PACKAGE, folder) == []


def test_the_engine_links_no_socket_clock_thread_or_python() -> None:
    """Of the objects of libdpcore.a, in the build without sanitizers."""
    objects = sorted((paths.ROOT / "build" / "datapath" / "libdpcore.a.p").glob("*.o"))
    sources = (
        path.relative_to(PACKAGE)
        for folder in layers.PURE
        for path in layers.c_files(PACKAGE, folder)
    )
    assert {path.name.removesuffix(".o") for path in objects} == {
        str(path).replace("/", "_") for path in sources if path.suffix == ".c"
    }
    assert layers.system_symbols(objects) == set()


@pytest.mark.parametrize("library", [paths.core_library, paths.verbs_library])
def test_libraries_need_no_python(library: object) -> None:
    assert callable(library)
    assert layers.undefined_symbols(library())
    assert layers.python_symbols(library()) == set()


def test_python_imports_point_down() -> None:
    """The contract is in pyproject.toml; here each way of breaking it is one test failure."""
    assert layers.broken_imports(paths.ROOT) == ""


def test_only_lanes_ask_for_a_lane_by_its_name() -> None:
    """Other layers ask for the properties in lanes/lane.py, which a new lane has too."""
    assert layers.askers_for_a_lane(PACKAGE) == []


def test_each_lane_of_the_file_has_its_row() -> None:
    lanes = get_args(Topology.model_fields["lane"].annotation)
    assert set(lanes) == set(LANES)
    keys = [key for lane in LANES.values() for key in lane.keys]
    assert set(keys) <= set(Topology.model_fields)
    assert len(keys) == len(set(keys))


def test_set_up_installs_what_lanes_and_workloads_start() -> None:
    tools = [tool for lane in LANES.values() for tool in lane.tools]
    tools += [tool for workload in REGISTRY.values() for tool in workload.tools]
    assert len(tools) > 5
    assert {tool.name for tool in tools} - set(packages()) == set()


def test_the_doors_name_files_that_exist() -> None:
    text = (paths.ROOT / "CONTRIBUTING.md").read_text()
    doors = text.partition("## Doors\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:datapath|tests|docs|setup)/[\w./-]+)`", doors))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (paths.ROOT / name).exists()] == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`dpctl --help` must not wait for pandas and its like."""
    assert layers.heavy_modules(paths.ROOT) == set()
