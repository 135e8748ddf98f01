"""A headless browser, driven through a pipe by the DevTools protocol: what a page looks like to one who opens it."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 30.0  # seconds for an answer


def find_browser() -> str | None:
    """The path of a browser of the Chromium family, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser with one page.

    Attributes:
        problems: errors and warnings of the page's console, its uncaught exceptions, and what it could not load.
        requests: addresses that the page asked for, those within it aside.
    """

    def __init__(self, executable: str, profile: Path) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._number, self._rest = 0, b""
        self._session: str | None = None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The browser reads commands from its descriptor 3 and answers on 4.
        moved = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            ["bash", "-c", moved, "bash", executable, *options],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # which the browser takes as the order to end
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._in)

    def open(self, page: Path, width: int, height: int = 900, *, script: bool = True) -> None:
        """Opens a page from its file at a width in CSS pixels, as if anew."""
        self.problems.clear()
        self.requests.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=page.resolve().as_uri())
        self._until("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """Evaluates JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def point(self, selector: str) -> tuple[float, float]:
        """Moves the mouse to the middle of the first element that a selector names, scrolled into view."""
        x, y = self.value(
            f"""(() => {{
                const part = document.querySelector({json.dumps(selector)});
                part.scrollIntoView({{block: "center", inline: "center"}});
                const box = part.getBoundingClientRect();
                return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector: str) -> None:
        """Clicks there."""
        x, y = self.point(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, file: Path) -> Path:
        """Takes a picture of the whole page, from top to bottom."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(picture["data"]))
        return file

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def _until(self, event: str) -> None:
        while self._read().get("method") != event:
            pass

    def _read(self) -> dict[str, Any]:
        """Reads one message, and notes what it tells of the page."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            waiting, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            if not waiting or not (more := os.read(self._in, 1 << 20)):
                raise AssertionError("the browser does not answer")
            self._rest += more
        first, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(first)
        facts = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(str(facts["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if facts["type"] in ("error", "warning", "assert"):
                self.problems.append(str(facts["args"]))
            case "Log.entryAdded" if facts["entry"]["level"] in ("error", "warning"):
                self.problems.append(facts["entry"]["text"])
            case "Network.loadingFailed":
                self.problems.append(facts["errorText"])
            case "Network.requestWillBeSent" if not facts["request"]["url"].startswith("data:"):
                self.requests.append(facts["request"]["url"])
        return message
