"""Chromium without a window, and the live page in it.

Selenium is imported here inside of functions: `requirements/web.txt` brings it for
`make test-web`, and the other stages only read these modules.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from pumice.local.ports import free_port
from pumice.web.gate import RequestGate
from pumice.web.server import KubeconfigFacts, PageServer
from shared.api.visibility import Change
from tests.support.answers import AnswersTransport
from tests.unit.web.page_world import World

KEY = "the-key"
_DEADLINE_S = 20.0


@contextmanager
def chromium(*, width: int = 1280, height: int = 800, dark: bool = False) -> Iterator[Any]:
    """Start a browser of this size; it is gone at the end."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.add_argument(f"--window-size={width},{height}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield driver
    finally:
        driver.quit()


class Keys:
    """The keys that have no letter, as the driver's protocol writes them."""

    ENTER = "\ue007"
    ESCAPE = "\ue00c"
    ARROW_DOWN = "\ue015"
    ARROW_RIGHT = "\ue014"


class Served:
    """The page of a world, served by a thread of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.may: Callable[[str], bool] = lambda _: True
        self.way = AnswersTransport(world, may=self._may)
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="page")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the page is served"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def address(self) -> str:
        """Return the address with its key, without a place."""
        return f"http://127.0.0.1:{self.port}/?key={KEY}"

    def tell(self, *changes: Change) -> None:
        """Send changes to the page."""
        for change in changes:
            self._loop.call_soon_threadsafe(self.world.tell, change)

    def change(self, act: Callable[[], None], *resources: str) -> None:
        """Change the world where the server runs, and tell the page."""
        self._loop.call_soon_threadsafe(act)
        self.tell(Change(resources=resources))

    def _may(self, namespace: str) -> bool:
        return self.may(namespace)

    def cut(self) -> None:
        """Break the streams of changes that are open, as a server does that starts again."""
        self._loop.call_soon_threadsafe(self.world.cut)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        gate = RequestGate(port=self.port, key=KEY)
        context = KubeconfigFacts(server="https://10.0.0.1:6443", namespace="team-00")
        async with PageServer(self.way, gate=gate, context=context).serving(self.port):
            self._ready.set()
            await self._end.wait()


def until(check: Callable[[], Any], what: str | Callable[[], str]) -> Any:
    """Return the first true value of a check; fails after a deadline, saying `what` was awaited."""
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.02)
    words = what if isinstance(what, str) else what()
    raise AssertionError(f"not within {_DEADLINE_S:g} s: {words}")


class Browsed:
    """The page at an address with its key, as a user meets it."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver = driver
        driver.get("about:blank")
        driver.get(address)
        until(lambda: self.text("#live") == "live", "the page is live")

    def run(self, script: str, *arguments: object) -> Any:
        """Return what a script returns."""
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        """Return the elements of a selector."""
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        """Return the text of the first element of a selector, "" when there is none."""
        words = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.run(words, selector))

    def shows(self, text: str, selector: str = "main") -> None:
        """Wait until an element shows a text."""
        until(
            lambda: text in self.text(selector),
            lambda: f"{text!r} in {selector}: {self.text(selector)!r}",
        )

    def go(self, place: str) -> None:
        """Follow a link to a place."""
        self.run("location.hash = arguments[0]", f"#/{place}")

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def fill(self, selector: str, text: str) -> None:
        """Write into a field."""
        (field,) = self.all(selector)
        field.clear()
        field.send_keys(text)


class Page(Browsed):
    """The page of a world that a test has made."""

    def __init__(self, driver: Any, served: Served, place: str = "") -> None:
        self.served = served
        super().__init__(driver, f"{served.address}#/{place}" if place else served.address)
