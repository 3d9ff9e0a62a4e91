"""A headless Chromium for tests, where one is installed."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest

SECONDS = 90
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# The browser speaks over its files 3 and 4; whatever is open there belongs to the test.
LAUNCHER = "import os, sys; a = sys.argv; os.dup2(int(a[1]), 3); os.dup2(int(a[2]), 4); os.execv(a[3], a[3:])"


def binary():
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


class Browser:
    """A headless Chromium, spoken to over a pipe in its own protocol: no driver, no port, no package."""

    def __init__(self, path, profile):
        theirs_in, self.out = os.pipe()
        self.inp, theirs_out = os.pipe()
        files = [fcntl.fcntl(file, fcntl.F_DUPFD, 10) for file in (theirs_in, theirs_out)]
        arguments = ["--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
        arguments += ["--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, *map(str, files), path, *arguments, "about:blank"],
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for file in (theirs_in, theirs_out, *files):
            os.close(file)
        self.rest, self.events, self.number, self.session = b"", [], 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None
        self.call("Browser.close")
        os.close(self.out)
        os.close(self.inp)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        answer = self.wait(lambda found: found.get("id") == self.number)
        assert "error" not in answer, answer
        return answer["result"]

    def wait(self, wanted):
        end = time.monotonic() + SECONDS
        while True:
            while b"\0" not in self.rest:
                ready, _, _ = select.select([self.inp], [], [], max(0, end - time.monotonic()))
                assert ready, "the browser does not answer"
                found = os.read(self.inp, 1 << 16)
                assert found, "the browser is gone"
                self.rest += found
            text, _, self.rest = self.rest.partition(b"\0")
            message = json.loads(text)
            self.events.append(message)
            if wanted(message):
                return message

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        if not self.of("Page.loadEventFired"):
            self.wait(lambda found: found.get("method") == "Page.loadEventFired")

    def of(self, method):
        return [found["params"] for found in self.events if found.get("method") == method]

    def ask(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, element):
        """A click of the mouse in the middle of an element."""
        # Tables near the screen are laid out in the next frame, and what is below them moves.
        self.ask(f"{element}.scrollIntoView({{block: 'center'}}); {TWO_FRAMES}")
        x, y = self.ask(
            f"{{const e = {element}; e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
            "[r.x + r.width / 2, r.y + r.height / 2]}"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key, code, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )


def started(profile):
    """A browser; the test is skipped, and says so, where there is none."""
    path = binary()
    if path is None:
        pytest.skip("no Chromium here; install one, or name it in the variable CHROMIUM")
    return Browser(path, profile)
