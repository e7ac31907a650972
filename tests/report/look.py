# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The pages in a real browser, by `make look`: at two widths, light and dark, and their scripts.

DATAPATH_LOOK names the folder that gets a picture of each, to be looked at.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from datapath import report
from datapath.native import paths
from tests.report import browser as browsers
from tests.report import folders
from tests.report.browser import Browser
from tests.report.test_timeline import WRITES, collected, flow

PICTURES = os.environ["DATAPATH_LOOK"]

SITE = paths.ROOT / "build" / "site"
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
AXE = """axe.run({resultTypes: ["violations"]}).then(({violations}) => violations
    .filter(({impact}) => IMPACTS.includes(impact))
    .map(({id, nodes}) => `${id}: ${nodes.map((node) => node.target).join("; ")}`))"""
OURS, OF_A_THEME = ["minor", "moderate", "serious", "critical"], ["serious", "critical"]
"""What axe-core may not find in pages that are all ours, and in those of the site."""

WIDER = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, which setup/look.txt brings."""
    package = importlib.util.find_spec("axe_playwright_python")
    assert package, "make look installs it"
    return (Path(str(package.origin)).parent / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name of the picture."""
    here = tmp_path_factory.mktemp("pages")
    whole = folders.write(here / "a", repetitions=6, failed=[(3, 2)])
    with (whole / "resolved.yaml").open("a") as file:  # longer than its box
        file.writelines(f"# line {number}\n" for number in range(100))
    over_time = [{"kind": "series", "metric": ["rate", "cwnd", "rtt"], "where": WRITES}]
    return {
        "report": report.build(whole),
        "over-time": report.build(
            collected(here / "b", [flow(7, 10_000_000), flow(9, 20_000_000)], plots=over_time)
        ),
    }


@pytest.fixture(scope="module")
def pages(reports: dict[str, Path]) -> dict[str, Path]:
    """Those of the site too."""
    found = dict(reports)
    for name in ("index", "docs/tutorial", "docs/results", "docs/cc", "reference/commands"):
        page = SITE / f"{name}.html"
        assert page.exists(), f"{page} is missing: make docs"
        found[f"site-{name.rpartition('/')[2].lower()}"] = page
    return found


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_pages_are_readable(
    browser: Browser, axe: str, pages: dict[str, Path], width: int, scheme: str
) -> None:
    """No page is wider than its window, and axe-core has nothing to say."""
    Path(PICTURES).mkdir(parents=True, exist_ok=True)
    problems: list[str] = []
    for name, page in pages.items():
        browser.open(page, width=width, scheme=scheme)
        browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        browser.picture(Path(PICTURES) / f"{name}-{width}-{scheme}.png")
        if wider := browser.run(WIDER):
            problems.append(f"{name}: {wider} px wider than the window")
        impacts = OF_A_THEME if name.startswith("site-") else OURS
        browser.run(f"{axe};globalThis.IMPACTS = {impacts};0")
        problems += [f"{name}: {told}" for told in browser.run(AXE)]
    assert problems == []


def test_the_site_fetches_nothing_from_elsewhere() -> None:
    """It is read where there is no network, too."""
    fetched = re.compile(r"<(?:script|img|iframe)[^>]*\bsrc=\S*//|<link(?![^>]*canonical)[^>]*//")
    pages = list(SITE.rglob("*.html"))
    assert pages
    assert [page.name for page in pages if fetched.search(page.read_text())] == []


def test_search(browser: Browser, pages: dict[str, Path]) -> None:
    """Of the site, as it is read from the disk."""
    browser.open(pages["site-tutorial"], width=1280, scheme="light")
    browser.run("document.querySelector('.md-search__input').focus();0")
    browser.call("Input.insertText", text="completion")
    found = browser.run("""new Promise((found) => setInterval(() => {
        const links = [...document.querySelectorAll("a.md-search-result__link")];
        if (links.length) found(links.map((link) => link.href));
    }, 50))""")
    assert any("reference/commands.html" in link and "#dpctl-completion" in link for link in found)


# --- figures over time ------------------------------------------------------------------------


@pytest.fixture
def figure(browser: Browser, reports: dict[str, Path]) -> dict[str, Any]:
    """Where the first panel is, in the window."""
    browser.open(reports["over-time"], width=1280, scheme="light")
    return dict(
        browser.run("""(() => {
            const svg = document.querySelector("svg[data-panes]");
            svg.scrollIntoView();
            const [x, y, width, height] = JSON.parse(svg.dataset.panes)[0].frame;
            const at = (x, y) => new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
            const [a, b] = [at(x, y), at(x + width, y + height)];
            return {left: a.x, top: a.y, width: b.x - a.x, height: b.y - a.y};
        })()""")
    )


def reading(browser: Browser) -> str:
    return str(browser.run("document.querySelector('.reading.on')?.innerText ?? ''"))


def test_values_under_the_pointer(browser: Browser, figure: dict[str, Any]) -> None:
    """The flows deliver 1 Gbit/s each, whatever the figure is scaled to."""
    middle = figure["top"] + figure["height"] / 2
    browser.mouse("moved", figure["left"] + figure["width"] / 2, middle)
    told = reading(browser)
    assert "Delivery rate" in told
    values = [float(value) for value in re.findall(r": ([\d.]+) Gbit/s", told)]
    assert values == pytest.approx([1.0] * len(values), abs=0.01)
    assert values
    browser.mouse("moved", figure["left"] - 30, middle)
    assert reading(browser) == ""


def test_zoom(browser: Browser, figure: dict[str, Any]) -> None:
    """A part of the axis of time becomes all of it, and Escape brings the rest back."""
    ticks = """[...document.querySelectorAll('svg[data-panes] [id*="-xtick_"]')]
        .filter((tick) => tick.style.display !== "none" && tick.querySelector("text"))
        .map((tick) => parseFloat(tick.querySelector("text").textContent))"""
    before = browser.run(ticks)
    y = figure["top"] + figure["height"] / 2
    places = [figure["left"] + share * figure["width"] for share in (0.4, 0.6)]
    browser.mouse("moved", places[0], y)
    browser.mouse("pressed", places[0], y)
    # Without the button that is held, the browser takes the pointer back from the figure.
    browser.mouse("moved", places[1], y, buttons=1, button="left")
    browser.mouse("released", places[1], y)
    shown = browser.run(ticks)
    end = browser.run(
        "JSON.parse(document.querySelector('svg[data-panes]').dataset.panes)[0].time"
    )[1]
    assert 0.3 * end < min(shown) < max(shown) < 0.7 * end
    browser.mouse("moved", figure["left"] + figure["width"] / 2, y)
    assert "1 Gbit/s" in reading(browser)
    browser.key("Escape")
    assert browser.run(ticks) == pytest.approx(before)


def test_a_drag_that_the_browser_takes_over_ends(browser: Browser, figure: dict[str, Any]) -> None:
    """A touch that becomes a scroll of the page leaves neither reading nor rectangle."""
    y = figure["top"] + figure["height"] / 2
    places = [figure["left"] + share * figure["width"] for share in (0.4, 0.6)]

    def touch(kind: str, *at: float) -> None:
        points = [{"x": x, "y": y} for x in at]
        browser.call("Input.dispatchTouchEvent", type=f"touch{kind}", touchPoints=points)

    touch("Start", places[0])
    touch("Move", places[1])
    chosen = "document.querySelector('svg[data-panes] .choice').hasAttribute('width')"
    assert browser.run(chosen)
    touch("Cancel")
    assert not browser.run(chosen)
    assert reading(browser) == ""
    browser.mouse("moved", places[1], y)
    assert not browser.run(chosen)
    assert "Delivery rate" in reading(browser)


def test_axes_with_units_are_sorted_by_size(browser: Browser, tmp_path: Path) -> None:
    folder = folders.write(tmp_path / "r", repetitions=1, samples=False)
    table = pd.read_parquet(folder / "runs.parquet")
    sizes = dict(zip(folders.STACKS, ("1MiB", "1KiB", "64KiB"), strict=True))
    table["stack"] = table["stack"].map(sizes)
    table.to_parquet(folder / "runs.parquet")
    browser.open(report.build(folder), width=1280, scheme="light")
    shown = browser.run("""(() => {
        const table = document.querySelector("#points table.sortable");
        table.querySelector("th").click();
        return [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
    })()""")
    assert list(dict.fromkeys(shown)) == ["1KiB", "64KiB", "1MiB"]


def test_keys(browser: Browser, figure: dict[str, Any]) -> None:
    browser.run("document.querySelector('svg[data-panes]').focus()")
    browser.key("ArrowRight")
    first = reading(browser)
    browser.key("PageDown")
    browser.key("ArrowDown")
    assert "Delivery rate" in first
    assert "Window" in reading(browser)
    browser.key("+")
    assert browser.run("document.querySelector('figure .save:last-child').textContent").startswith(
        "Shown:"
    )
