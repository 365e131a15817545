"""A headless Chromium, driven through its DevTools protocol."""

import asyncio
import base64
import itertools
import json
import socket
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import uvicorn
from websockets.asyncio.client import ClientConnection, connect

PROGRAM = "chromium"
_FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root in containers, where the sandbox cannot start; they open their own pages only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--use-fake-device-for-media-stream",  # a microphone that beeps
    "--use-fake-ui-for-media-stream",  # allowed without a question
    "--autoplay-policy=no-user-gesture-required",
    "--mute-audio",
)
_WAIT_MS = 60_000  # for what takes milliseconds on a quiet machine
_FRAME_MS = 500  # two frames take 33 ms on a quiet machine
_KEYS = {
    "Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "End": 35, "Home": 36, "ArrowDown": 40,
    "ArrowUp": 38, " ": 32,
}  # fmt: skip
# Console messages about answers that a test caused (401, 503, a broken connection) are no faults of the page.
_EXPECTED_SOURCES = frozenset(("network",))


class Chrome:
    """One browser process with a profile of its own; tabs are opened by tests."""

    def __init__(self, profile: Path) -> None:
        command = [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.url = self._listening_at()
        self._drain = threading.Thread(target=self._read_on, daemon=True)
        self._drain.start()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._drain.join()
        self._process.stderr.close()

    def _listening_at(self) -> str:
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if line.startswith("DevTools listening on "):
                return line.removeprefix("DevTools listening on ").strip()
        raise RuntimeError("chromium ended at once:\n" + "".join(lines))

    def _read_on(self) -> None:
        """Keep the pipe empty: a full one would block the browser."""
        assert self._process.stderr is not None
        for _ in self._process.stderr:
            pass


class Tab:
    """One page in a context of its own: no cookies, no storage, nothing from another test."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None
        self._loaded: asyncio.Future[None] | None = None  # done at the next load event
        self.faults: list[str] = []  # exceptions and errors of the console
        self.requests: list[str] = []  # every requested URL

    async def attach(self, session: str) -> None:
        """Send to this session from now on, and receive its events."""
        self._session = session
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            await self.send(f"{domain}.enable")

    async def listen(self) -> None:
        """Receive replies and events until the connection ends."""
        async for text in self._connection:
            message = json.loads(text)
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
            else:
                self._on_event(message["method"], message["params"])

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._connection.send(json.dumps(message))
        reply = await answer
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.wait_for("document.readyState === 'complete' && document.querySelector('[aria-selected=true]')")

    async def reload(self, *, to_hash: str | None = None) -> None:
        """Load the page again, with this hash in its address if given; the next script runs in the new one."""
        if to_hash is not None:
            await self.run(f"history.replaceState(null, '', {json.dumps(to_hash)})")  # the page that goes does not hear
        loaded = self._loaded = asyncio.get_running_loop().create_future()
        await self.send("Page.reload")
        await asyncio.wait_for(loaded, _WAIT_MS / 1000)

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page; promises are awaited."""
        options = {"awaitPromise": True, "returnByValue": True, "allowUnsafeEvalBlockedByCSP": False}
        reply = await self.send("Runtime.evaluate", expression=script, **options)
        if "exceptionDetails" in reply:
            raise AssertionError(reply["exceptionDetails"]["exception"].get("description", reply))
        return reply["result"].get("value")

    async def wait_for(self, script: str, *, limit_s: float = _WAIT_MS / 1000) -> Any:
        """The value of an expression as soon as it is truthy and drawn; fails with the page's text when it never is.

        A row with `content-visibility: auto` has no innerText before the first frame after it was put in.
        """
        return await self.run(
            f"""new Promise((resolve, reject) => {{
                const end = performance.now() + {limit_s * 1000};
                const drawn = (then) => {{
                    setTimeout(then, {_FRAME_MS}); // where no frame is drawn
                    requestAnimationFrame(() => requestAnimationFrame(then));
                }};
                const look = () => {{
                    let value = null;
                    try {{ value = {script}; }} catch {{ value = null; }}
                    if (value) drawn(() => resolve(typeof value === "object" ? true : value));
                    else if (performance.now() < end) setTimeout(look, 20);
                    else reject(new Error("never true, while this was shown: " + document.body.innerText));
                }};
                look();
            }})"""
        )

    async def text(self, selector: str) -> str:
        """The visible text of the first element that matches."""
        return str(await self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def click(self, selector: str) -> None:
        """Click with the mouse in the middle of an element; what covers it is hit instead.

        It has not moved for three frames by then: a busy browser is still laying out, and finds what is under the mouse
        in the picture it has.
        """
        x, y = await self.run(
            f"""(async () => {{
                const node = document.querySelector({json.dumps(selector)});
                node.scrollIntoView({{block: "center", inline: "center", behavior: "instant"}});
                let box = node.getBoundingClientRect();
                for (let frame = 0, still = 0; frame < 60 && still < 3; frame++, still++) {{
                    await new Promise(requestAnimationFrame);
                    const after = node.getBoundingClientRect();
                    if (after.x !== box.x || after.y !== box.y) still = -1;
                    box = after;
                }}
                return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str) -> None:
        """One key, on whatever has the focus."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        await self.send("Input.dispatchKeyEvent", type="keyDown", text="\r" if key == "Enter" else "", **named)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def choose_file(self, *paths: Path, selector: str = "#file") -> None:
        """Pick files, as the file dialog does."""
        root = await self.send("DOM.getDocument")
        element = await self.send("DOM.querySelector", nodeId=root["root"]["nodeId"], selector=selector)
        await self.send("DOM.setFileInputFiles", files=[str(path) for path in paths], nodeId=element["nodeId"])

    async def drop_file(self, *paths: Path) -> None:
        """Drag files over the page and let them go."""
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            await self.send("Input.dispatchDragEvent", type=kind, x=300, y=300, data=data)

    async def show(self, *, width_px: int = 1280, height_px: int = 860, scale: float = 1, dark: bool = False) -> None:
        """A window of this size in CSS pixels, and the reader's colour scheme."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width_px,
            height=height_px,
            deviceScaleFactor=scale,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def offline(self, *, on: bool) -> None:
        await self.send(
            "Network.emulateNetworkConditions", offline=on, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    async def accessible(self) -> list[dict[str, Any]]:
        """The accessibility tree: nodes with role, name and properties, ignored ones left out."""
        tree = await self.send("Accessibility.getFullAXTree")
        return [_properties(node) for node in tree["nodes"] if not node.get("ignored")]

    async def screenshot(self) -> bytes:
        """The window as a PNG."""
        shot = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])

    def _on_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.faults.append(str(details.get("exception", {}).get("description", details["text"])))
        elif method == "Log.entryAdded" and params["entry"]["source"] not in _EXPECTED_SOURCES:
            self.faults.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired" and self._loaded is not None and not self._loaded.done():
            self._loaded.set_result(None)


def _properties(node: dict[str, Any]) -> dict[str, Any]:
    properties = {item["name"]: item["value"].get("value") for item in node.get("properties", ())}
    role, name = node.get("role", {}).get("value", ""), node.get("name", {}).get("value", "")
    return {"role": role, "name": name, **properties}


class _Server(uvicorn.Server):
    """Leaves the signals to the test run."""

    def capture_signals(self) -> AbstractContextManager[None]:
        return nullcontext()


@asynccontextmanager
async def served(app: Any, **more: Any) -> AsyncIterator[str]:
    """The address at which an app is served."""
    listener = socket.create_server(("127.0.0.1", 0))
    options: dict[str, Any] = {"log_config": None, "log_level": "warning", "lifespan": "off", **more}
    server = _Server(uvicorn.Config(app, timeout_graceful_shutdown=1, **options))
    serving = asyncio.create_task(server.serve([listener]))
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    await serving
    listener.close()


@asynccontextmanager
async def open_tab(chrome: Chrome, *, languages: str = "en") -> AsyncIterator[Tab]:
    """A tab whose browser asks for these languages."""
    async with connect(chrome.url, max_size=None) as connection:
        tab = Tab(connection)
        listening = asyncio.create_task(tab.listen())
        context = (await tab.send("Target.createBrowserContext"))["browserContextId"]
        target = await tab.send("Target.createTarget", url="about:blank", browserContextId=context)
        session = await tab.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        await tab.attach(session["sessionId"])
        agent = (await tab.run("navigator.userAgent")).replace("Headless", "")
        await tab.send("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=languages)
        await tab.show()
        try:
            yield tab
        finally:
            tab._session = None
            await tab.send("Target.disposeBrowserContext", browserContextId=context)
            listening.cancel()
