# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The generator on machines of lane ssh: copied there, and its reports brought back."""

from __future__ import annotations

from pathlib import Path as FilePath

from tests.lanes.test_ssh import EXPERIMENT, Site, records, site

__all__ = ["site"]  # a fixture

MATRIX = """sweep:
  matrix:
    stack:
      - {label: dp, set: {transport.device: dp}}
      - {label: tcp, set: {transport.device: kernel}}
    traffic:
      - {label: stream, set: {workload: {kind: stream, duration: 300ms, size: 16KiB, verify: true}}}
      - label: flows
        set:
          workload:
            {kind: flows, sizes: alistorage2019, duration: 200ms, link_rate: 1gbit, load: 20%}
"""


def test_traffic_on_machines(site: Site, tmp_path: FilePath) -> None:
    path = site.folder / "traffic.yaml"
    path.write_text(EXPERIMENT.replace("sweep:\n", MATRIX))
    out = tmp_path / "out"
    done = site.dpctl("run", "--no-report", path, "--out", out)
    assert done.returncode == 0, done.stderr
    found = {tuple(record["axes"].values()): record for record in records(out)}
    assert len(found) == 4
    for record in found.values():
        metrics = {metric["name"]: metric["value"] for metric in record["metrics"]}
        assert metrics["goodput"] > 0
        assert metrics["unfinished_share"] == 0
    for sshd in site.sshds:
        assert not list(sshd.temporary.iterdir())
        assert sshd.host.run(["pgrep", "dp-traffic"]).returncode == 1
