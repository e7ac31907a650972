# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Flow sizes: the published numbers, and what is drawn from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy  # its parts are imported where they are used
from pydantic import ValidationError

from datapath.errors import LocalError
from datapath.workloads.kinds.flows import FlowsParams
from datapath.workloads.traffic import sizes

# getAvg() of the artefact's custom_rand.py over its files.
MEANS = {"websearch": 1711250.0, "fb_hadoop": 120420.75, "alistorage2019": 40869.8}


@pytest.mark.parametrize("name", sizes.PUBLISHED)
def test_mean_is_that_of_the_artefact(name: str) -> None:
    found = sizes.published(name)
    assert found.mean_bytes == pytest.approx(MEANS[name])
    drawn = found.draw(np.random.default_rng(1), 2_000_000)
    # Half a byte is lost on average, as in the artefact, which takes whole bytes.
    assert drawn.mean() == pytest.approx(MEANS[name], rel=0.01)


@pytest.mark.parametrize("name", sizes.PUBLISHED)
def test_what_is_drawn_has_the_published_distribution(name: str) -> None:
    found = sizes.published(name)
    rng = np.random.default_rng(7)
    # Spread over its byte again, since the test is one for continuous distributions.
    drawn = found.draw(rng, 20_000) + rng.random(20_000)
    assert scipy.stats.kstest(drawn, found.cdf).pvalue > 0.01
    assert scipy.stats.kstest(drawn * 1.1, found.cdf).pvalue < 1e-6  # the test can tell


@pytest.mark.parametrize("name", sizes.PUBLISHED)
def test_every_file_tells_its_source(name: str) -> None:
    text = (Path(sizes.__file__).parent / "cdf" / f"{name}.cdf").read_text()
    assert "github.com/alibaba-edu/High-Precision-Congestion-Control" in text
    found = sizes.published(name)
    assert (found.shares[0], found.shares[-1]) == (0, 1)


def test_points_of_the_published_files() -> None:
    """A few that papers quote."""
    assert sizes.published("websearch").cdf(1_000_000) == pytest.approx(0.70)
    assert sizes.published("fb_hadoop").cdf(1_000) == pytest.approx(0.60)
    assert sizes.published("alistorage2019").cdf(8_000) == pytest.approx(0.6921)


def test_equal_seeds_draw_equal_sizes() -> None:
    found = sizes.published("websearch")
    first, again, other = (found.draw(np.random.default_rng(s), 100) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.cdf"
    path.write_text("# two sizes\n100 0\n\n100.5 50  # half\n200 100\n")
    found = sizes.read(path)
    assert found.mean_bytes == pytest.approx((100.25 + 150.25) / 2)
    assert set(np.unique(found.draw(np.random.default_rng(1), 1000))) <= set(range(100, 201))


def test_a_size_that_is_repeated_is_a_step(tmp_path: Path) -> None:
    path = tmp_path / "steps.cdf"
    path.write_text("100 0\n100 40\n5000 40.000001\n5000 100\n")
    found = sizes.read(path)
    assert found.mean_bytes == pytest.approx(0.4 * 100 + 0.6 * 5000, rel=1e-4)
    drawn = found.draw(np.random.default_rng(1), 10_000)
    assert set(np.unique(drawn)) == {100, 5000}
    assert (drawn == 100).mean() == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(("written", "size"), [(1000, 1000), ("1kB", 1000), ("64KiB", 65536)])
def test_one_size_for_all_flows(written: Any, size: int) -> None:
    found = sizes.named(FlowsParams(sizes=written).sizes, Path())
    assert found.mean_bytes == size
    assert set(found.draw(np.random.default_rng(1), 100)) == {size}


@pytest.mark.parametrize("written", ["websurch", "", 0, "2GiB", True])
def test_what_names_no_sizes(written: Any) -> None:
    with pytest.raises(ValidationError, match="sizes"):
        FlowsParams(sizes=written)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "from 0 to 100"),
        ("10 0\n20 90\n", "from 0 to 100"),
        ("10 5\n20 100\n", "from 0 to 100"),
        ("0 0\n0 100\n", "all flows would be empty"),
        ("10 0\n9 100\n", ":2: shares have to grow .*, and sizes must not fall"),
        ("10 0\n20 50\n30 40\n", ":3: shares have to grow"),
        ("10 0\nx 100\n", ":2: 'x 100' is not two numbers"),
        ("10 0\n20 100 3\n", "not two numbers"),
        ("10 0\n20 101\n", "shares 0 to 100"),
        ("-1 0\n20 100\n", "0 to 1 GiB"),
        ("0 0\n99999999999 100\n", "0 to 1 GiB"),
    ],
)
def test_a_wrong_file_is_told_by_its_line(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "mine.cdf"
    path.write_text(text)
    with pytest.raises(LocalError, match=what):
        sizes.read(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"none\.cdf"):
        sizes.read(tmp_path / "none.cdf")
