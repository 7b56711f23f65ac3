"""A headless Chromium, driven through its own protocol over a websocket (aiohttp's, which Ray brings)."""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from launch.testbed.processes import DEADLINE_S

T = TypeVar("T")

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
          "--remote-debugging-port=0", "--window-size=1280,900", "about:blank")  # fmt: skip


# What Chromium says of a script whose page has gone.
_GONE = (
    "Execution context was destroyed.",
    "Cannot find default execution context",
    "Inspected target navigated or closed",
    "Promise was collected",
)


class PageGone(Exception):
    """A page was left before it has answered."""


class Browser:
    """One tab.

    Args:
        address: Of its websocket.
    """

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._session = self._do(self._opened())
        self._socket = self._do(self._session.ws_connect(address, max_msg_size=0))
        self._number = 0
        self.said: list[str] = []  # errors of pages, and what policies refused
        self.asked: list[str] = []  # addresses that pages asked for
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    async def _opened(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, DEADLINE_S))

    def call(self, method: str, **parameters: Any) -> Any:
        """Ask for something and wait for the answer."""
        self._number += 1
        self._do(self._socket.send_str(json.dumps({"id": self._number, "method": method, "params": parameters})))
        while True:
            message = json.loads(self._do(self._socket.receive_str()))
            if message.get("id") == self._number:
                if message.get("error", {}).get("message") in _GONE:
                    raise PageGone(message["error"]["message"])
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        content = message.get("params", {})
        if message["method"] == "Runtime.exceptionThrown":
            self.said.append(json.dumps(content["exceptionDetails"])[:500])
        elif message["method"] == "Log.entryAdded" and content["entry"]["level"] == "error":
            self.said.append(content["entry"]["text"])
        elif message["method"] == "Network.requestWillBeSent":
            self.asked.append(content["request"]["url"])

    def open(self, address: str) -> None:
        """Go to a page, and wait until its scripts have run."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of a script."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script: str, timeout_s: float = DEADLINE_S) -> None:
        """Look until a script's value is true; a page that is left meanwhile is no answer."""

        def is_so() -> bool:
            with contextlib.suppress(PageGone):
                return bool(self.run(script))
            return False

        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < deadline, f"after {timeout_s:g} s still not: {script}; {self.said}"
            time.sleep(0.05)

    def click(self, element: str, timeout_s: float = DEADLINE_S) -> None:
        """What a script finds, as soon as it is there, in one step: news may put another in its place at any time."""
        self.wait(f"(() => {{ const found = {element}; found?.click(); return Boolean(found); }})()", timeout_s)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      text="\r" if key == "Enter" and kind == "keyDown" else "")  # fmt: skip

    def screenshot(self, path: Path, width: int, height: int, *, is_dark: bool = False) -> None:
        theme = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=theme)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    @contextlib.contextmanager
    def offline(self) -> Iterator[None]:
        """Without a network."""
        limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.call("Network.emulateNetworkConditions", offline=True, **limits)
        try:
            yield
        finally:
            self.call("Network.emulateNetworkConditions", offline=False, **limits)

    def close(self) -> None:
        self._do(self._socket.close())
        self._do(self._session.close())
        self._loop.close()


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A new one, of which nothing is left."""
    assert CHROMIUM is not None
    profile = Path(tempfile.mkdtemp(prefix="pcl-browser-"))
    process = subprocess.Popen(
        [CHROMIUM, f"--user-data-dir={profile}", *_FLAGS], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        found = Browser(_address(profile / "DevToolsActivePort"))
        try:
            yield found
        finally:
            found.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
        shutil.rmtree(profile, ignore_errors=True)


def _address(file: Path) -> str:
    """Of the first tab, once the browser has said at which port it listens."""
    deadline = time.monotonic() + DEADLINE_S
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < deadline, "Chromium did not start"
        time.sleep(0.05)
    port = file.read_text().split()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=DEADLINE_S) as answer:
        tabs = json.load(answer)
    return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
