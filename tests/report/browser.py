# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Chromium without a window, driven over a pair of pipes by its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
)  # fmt: skip


def program() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page at a time."""

    def __init__(self, ask: int, answer: int) -> None:
        self._ask, self._answer = os.fdopen(ask, "wb"), os.fdopen(answer, "rb")
        self._number = 0
        self._session: str | None = None
        self._rest = b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Ask the browser for something, and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._ask.write(json.dumps(message).encode() + b"\0")
        self._ask.flush()
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._answer.fileno(), 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, page: Path, *, width: int, scheme: str) -> None:
        """scheme: light or dark."""
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=media)
        size: Mapping[str, Any] = {"width": width, "height": 900, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=False, **size)
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of an expression in the page, of a promise when it is kept."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        """kind: moved, pressed or released."""
        about = {"type": f"mouse{kind.capitalize()}", "x": x, "y": y, **more}
        if kind != "moved":
            about |= {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", **about)

    def key(self, name: str) -> None:
        text = {"text": name} if len(name) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def picture(self, file: Path) -> None:
        """The whole page, also what is below the window."""
        # As high as it is now: the browser's own idea may be older than what a script has opened.
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "scale": 1, "width": size["width"], "height": size["height"]}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._ask.close()
        self._answer.close()


def _pipe() -> tuple[int, int]:
    """With descriptors above those that a browser is given."""
    ends = os.pipe()
    moved = fcntl.fcntl(ends[0], fcntl.F_DUPFD, 10), fcntl.fcntl(ends[1], fcntl.F_DUPFD, 10)
    for end in ends:
        os.close(end)
    return moved


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    found = program()
    assert found, f"none of {', '.join(NAMES)} is installed"
    to_it, ask = _pipe()
    answer, from_it = _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads from 3 and writes to 4, whatever these pipes are numbered.
        moved = f'exec "$0" "$@" 3<&{to_it} 4>&{from_it} {to_it}<&- {from_it}>&-'
        process = subprocess.Popen(
            ["bash", "-c", moved, found, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=[to_it, from_it],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_it)
        os.close(from_it)
        driver = Browser(ask, answer)
        try:
            yield driver
        finally:
            driver.close()
            process.terminate()
            process.wait()
