"""All services on one loop: what each is given, and what becomes of the others when one fails."""

import asyncio

import msgspec
import pytest
import structlog

from pumice.local import in_process
from pumice.local.nats import Users
from pumice.local.ports import LOOPBACK, free_port
from pumice.local.services import InProcessServices, ServiceSettings, parse_arguments
from services.cache.settings import CacheSettings
from shared.contracts.permissions import EVENTS
from shared.runtime import service
from shared.runtime.errors import Broken, Rejected

SERVICES = ("cache", "scheduler", "admission")


class Line:
    """Takes what the services log."""

    def msg(self, message: str) -> None:
        """Forget it."""

    debug = info = warning = error = msg


class Works:
    """A part that runs until it is told to end, and says so."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self._seen = seen

    async def run(self) -> None:
        self._seen.append(f"{self.name} runs")
        try:
            await asyncio.Event().wait()
        finally:
            self._seen.append(f"{self.name} ended")


class Fails:
    """A part that fails once all others run."""

    name = "cycle"

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    async def run(self) -> None:
        while len(self._seen) < len(SERVICES) - 1:
            await asyncio.sleep(0)
        raise Broken("the ledger is wrong")


@pytest.fixture
def words(tmp_path):
    settings = ServiceSettings(kubeconfig=None, nats_url=f"nats://{LOOPBACK}:{free_port()}")
    flags = {"cache": ("--log-level=debug",), "scheduler": (), "admission": ()}
    return parse_arguments(InProcessServices(settings, tmp_path, flags=flags).process.spec.argv[4:])


@pytest.fixture
def serve(words, tmp_path, monkeypatch):
    """Return a function that serves with parts of the test's own; `None` stands for a failure."""
    monkeypatch.setattr(structlog.contextvars, "bind_contextvars", lambda **_: {})
    # A timer that ends the process outlives the service that has stopped: here it ends nothing.
    monkeypatch.setattr(service, "_exit_at_once", lambda message: None)

    async def run(build, stop):
        monkeypatch.setattr(in_process, "_build", lambda service, memory: build(service))
        users = Users(tmp_path, words.cluster)
        settings = in_process._settings(words, users)
        async with asyncio.timeout(20):
            return await in_process._serve_all(
                words, settings, users.passwords[EVENTS], Line(), stop=stop
            )

    return run


def test_the_arguments_carry_each_services_flags_and_no_password(words, tmp_path):
    assert tuple(words.flags) == SERVICES
    assert "--log-level=debug" in words.flags["cache"]
    assert "--log-level=debug" not in words.flags["scheduler"]
    listens = {flag for flags in words.flags.values() for flag in flags if "listen" in flag}
    assert len(listens) == len(SERVICES)
    users = Users(tmp_path, words.cluster)
    assert not any(password in " ".join(words.argv()) for password in users.passwords.values())


def test_jobs_travel_sealed_between_cache_and_controller_here_too(words, tmp_path):
    cache = in_process._settings(words, Users(tmp_path, words.cluster))["cache"]
    assert isinstance(cache, CacheSettings)
    assert cache.state_key.reveal()


def test_a_wrong_setting_names_its_service(words, tmp_path):
    wrong = {**words.flags, "scheduler": ("--gang-message=much",)}
    words = msgspec.structs.replace(words, flags=wrong)
    with pytest.raises(Rejected, match=r"scheduler: --gang-message"):
        in_process._settings(words, Users(tmp_path, "local"))


async def test_the_first_failure_ends_all_services_and_names_its_own(serve):
    seen = []

    def build(service):
        async def parts(settings, context):
            return [Fails(seen)] if service == "scheduler" else [Works(service, seen)]

        return parts

    code, message = await serve(build, asyncio.Event())
    assert (code, message) == (1, "scheduler: the ledger is wrong")
    assert sorted(seen) == [
        *("admission ended", "admission runs"),
        *("cache ended", "cache runs"),
    ]


async def test_what_cannot_be_built_ends_all_services_too(serve):
    def build(service):
        async def parts(settings, context):
            if service == "cache":
                raise Rejected("--no-such: refused", field="no-such")
            return [Works(service, [])]

        return parts

    assert await serve(build, asyncio.Event()) == (2, "cache: --no-such: refused")


async def test_a_signal_ends_all_in_order_without_a_complaint(serve):
    stop, seen = asyncio.Event(), []

    def build(service):
        async def parts(settings, context):
            if service == "admission":
                asyncio.get_running_loop().call_later(0.05, stop.set)
            return [Works(service, seen)]

        return parts

    assert await serve(build, stop) == (0, "")
    assert sum(line.endswith("ended") for line in seen) == len(SERVICES)


async def test_a_taken_port_is_told(serve, words):
    taken = await asyncio.start_server(lambda *_: None, LOOPBACK, words.port)
    async with taken:
        code, message = await serve(lambda service: None, asyncio.Event())
    assert code == 2
    assert str(words.port) in message
