"""Services that cannot start, or not yet: one line that names the thing, and no hurry meanwhile."""

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from pumice.local import parts
from pumice.local.nats import NatsServer
from pumice.local.ports import free_port
from tests.integration.borders.conftest import Borders
from tests.support.fleet import SERVICES, Fleet, Place, Service, fleet
from tests.support.proxy import kubeconfig_through, proxy
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]

NATS_CONNECTIONS = 2
"""Of a service: the bus, and one for leases and members."""

CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
"""


async def ended(service: str, *flags: str) -> tuple[int | None, str]:
    """Run a service to its end; return exit code and the last line of what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", f"services.{service}", "--log-format=json", *flags),
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "", "HOME": "/nonexistent"},
    )
    try:
        async with asyncio.timeout(40):
            _, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    text = err.decode()
    assert "Traceback" not in text, text
    return process.returncode, text.splitlines()[-1]


@pytest.fixture
def files(place: Place, tmp_path: Path) -> Path:
    """A directory with all sorts of files that services cannot use."""
    good = place.kubeconfig.read_text()
    lost = yaml.safe_load(good) | {"current-context": "nowhere"}
    for name, text in {
        "kubeconfig": good,
        "unknown-context": yaml.safe_dump(lost),
        "no-yaml": "clusters: [",
        "no-kubeconfig": "hello",
        "key.yaml": CONF.replace("actions", "actoins"),
        "action.yaml": CONF.replace("allocate", "alocate"),
        "plugin-key.yaml": CONF.replace("name: gang", "nmae: gang"),
        "argument.yaml": CONF + "  - name: binpack\n    arguments: {binpack.weight: heavy}\n",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


KUBE = "--kubeconfig={files}/kubeconfig"
CONF_FLAG = "--scheduler-conf={files}"
ENDS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    "no-kubeconfig-there": ("cache", ["--kubeconfig=/nowhere"], ("/nowhere", "no such file")),
    "no-yaml": ("binder", ["--kubeconfig={files}/no-yaml"], ("/no-yaml", "parsing")),
    "no-kubeconfig": (
        "controller",
        ["--kubeconfig={files}/no-kubeconfig"],
        ("/no-kubeconfig", "no kubeconfig"),
    ),
    "unknown-context": (
        "controller",
        ["--kubeconfig={files}/unknown-context"],
        ("/unknown-context", "nowhere"),
    ),
    "no-cluster": ("cache", [], ("no cluster", "--kubeconfig", "KUBECONFIG")),
    "unknown-flag": ("cache", ["--kubeconfg=x"], ("--kubeconfg", "did you mean --kubeconfig")),
    "no-duration": (
        "scheduler",
        ["--schedule-period=soon"],
        ("--schedule-period", "'soon'", "200ms"),
    ),
    "no-nats-address": ("binder", [KUBE, "--nats=http://a"], ("http://a", "nats://host:4222")),
    "no-ca": ("binder", [KUBE, "--nats-ca=/nowhere"], ("/nowhere", "TLS")),
    "no-configuration": ("scheduler", ["--scheduler-conf=/nowhere"], ("/nowhere", "No such file")),
    "no-default-configuration": (
        "scheduler",
        ["--disable-default-scheduler-config"],
        ("--disable-default-scheduler-config", "--scheduler-conf"),
    ),
    "no-address": ("cache", [KUBE, "--master=ftp://there"], ("--master", "'ftp://there'")),
    "wrong-key": ("scheduler", [f"{CONF_FLAG}/key.yaml"], ("key.yaml", "actoins", "'actions'")),
    "wrong-action": (
        "scheduler",
        [f"{CONF_FLAG}/action.yaml"],
        ("action.yaml", "'alocate'", "'allocate'"),
    ),
    "wrong-plugin-key": (
        "scheduler",
        [f"{CONF_FLAG}/plugin-key.yaml"],
        ("tiers[0].plugins[0].nmae", "did you mean 'name'"),
    ),
    "wrong-argument": (
        "scheduler",
        [f"{CONF_FLAG}/argument.yaml"],
        ("tiers[0], plugin binpack", "binpack.weight", "'heavy'"),
    ),
}


@pytest.mark.parametrize("case", ENDS)
async def test_what_a_service_cannot_start_with_is_one_line(case: str, files: Path) -> None:
    service, flags, words = ENDS[case]
    code, line = await ended(service, *(flag.format(files=files) for flag in flags))
    assert line.startswith("error: "), line
    assert all(word in line for word in words), line
    assert code == 2


async def test_a_taken_port_is_named_by_every_service(files: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        kubeconfig = f"--kubeconfig={files}/kubeconfig"
        for service in SERVICES:
            flags = [] if service == "scheduler" else [kubeconfig]
            code, line = await ended(service, *flags, f"--listen-address={address}")
            assert code == 2
            assert f"listen address {address} is taken" in line
            assert "--listen-address" in line


class Closed:
    """A port that breaks every connection, and counts them."""

    def __init__(self) -> None:
        self.port = 0
        self.times: list[float] = []

    async def serve(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.times.append(asyncio.get_running_loop().time())
        writer.transport.abort()


@asynccontextmanager
async def closed() -> AsyncIterator[Closed]:
    """Open such a port."""
    door = Closed()
    server = await asyncio.start_server(door.serve, "127.0.0.1", 0)
    door.port = server.sockets[0].getsockname()[1]
    try:
        yield door
    finally:
        server.close()


async def test_services_wait_for_nats_and_the_api_server_and_name_them(
    place: Place, tmp_path: Path
) -> None:
    nats = NatsServer(
        binary=parts.nats_server_binary(), directory=tmp_path / "nats", port=free_port()
    )
    async with proxy(port_of(place)) as api_server:
        api_server.cut()
        config = kubeconfig_through(api_server, place.kubeconfig, tmp_path / "kubeconfig")
        own = Place(config, nats)
        try:
            async with fleet(own, tmp_path, beside=True) as services:
                waiting = {name: await services.start(name, wait=False) for name in SERVICES}
                for service in waiting.values():
                    await says(services, service, f"cannot reach NATS at {nats.url}")
                await nats.start()
                for name in ("cache", "binder"):
                    await says(services, waiting[name], f"https://127.0.0.1:{api_server.port}")
                api_server.mend()
                for service in waiting.values():
                    await service.ready(deadline_s=30)
                    await service.said("nats_unreachable")
                    assert set(told(service, "nats_unreachable").values()) == {1}
        finally:
            await nats.stop()


def told(service: Service, event: str) -> Counter[str]:
    """Count the lines about an event by the connection that they are about."""
    lines = [json.loads(line) for line in service.log.splitlines()]
    return Counter(line["part"] for line in lines if line["event"] == event)


async def says(services: Fleet, service, words: str) -> None:
    """Wait until a service says that it is not ready, and why."""
    seen = ""

    async def probe() -> bool:
        nonlocal seen
        seen = await service.unready()
        return words in seen

    await until(probe, deadline_s=20, describe=lambda: f"{words} in {seen}\n{services.logs()}")


def port_of(place: Place) -> int:
    """Return the port of the API server."""
    clusters = yaml.safe_load(place.kubeconfig.read_text())["clusters"]
    return int(clusters[0]["cluster"]["server"].rpartition(":")[2])


async def test_nobody_hammers_a_server_that_breaks_every_connection(
    place: Place, tmp_path: Path
) -> None:
    most = 6 * NATS_CONNECTIONS  # one more, and one of the connections was tried seven times
    async with closed() as door, closed() as api_door:
        document = yaml.safe_load(place.kubeconfig.read_text())
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{api_door.port}"
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
        nats = NatsServer(
            binary=parts.nats_server_binary(), directory=tmp_path / "nats", port=free_port()
        )
        nats.port = door.port
        own = Place(tmp_path / "kubeconfig", nats)
        async with fleet(own, tmp_path, beside=True) as services:
            await services.start("binder", wait=False)
            await until(lambda: len(door.times) > most, deadline_s=30, describe=services.logs)
            await until(lambda: len(api_door.times) > 1, deadline_s=30, describe=services.logs)
    span_s = door.times[most] - door.times[0]
    assert span_s > 1.0, f"{most} attempts at NATS within {span_s:.2f} s"
    assert api_door.times[1] - api_door.times[0] > 0.5


async def test_a_wrong_password_is_named_and_the_right_one_is_taken_when_it_comes(
    place: Place, tmp_path: Path, nats_server: NatsServer
) -> None:
    right = nats_server.passwords["scheduler"]
    nats_server.passwords["scheduler"] = "wrong"
    own = Place(place.kubeconfig, nats_server)
    async with fleet(own, tmp_path, beside=True) as services:
        await services.start("cache")
        scheduler = await services.start("scheduler", wait=False)
        refusal = f"NATS at {nats_server.url} refuses our user or password"
        await says(services, scheduler, refusal)
        assert right not in scheduler.log
        assert '"wrong"' not in scheduler.log
        await nats_server.restart()  # now "wrong" is what its configuration says
        await scheduler.ready(deadline_s=30)


async def test_a_wrong_configuration_is_named_and_the_old_one_stays(
    borders: Borders, tmp_path: Path
) -> None:
    conf = tmp_path / "scheduler.yaml"
    conf.write_text(CONF)
    standby = await borders.fleet.start("scheduler", instance="conf", scheduler_conf=str(conf))
    for text, word in (
        (CONF.replace("tiers", "teirs"), "teirs"),
        (CONF.replace("backfill", "backfil"), "backfil"),
        ("actions: [", "no YAML"),
    ):
        draft = conf.with_suffix(".new")
        draft.write_text(text)
        draft.rename(conf)
        await standby.said("configuration_refused", word)
        await standby.ready()
    conf.write_text(CONF + "  - name: binpack\n")
    await standby.said("configuration_reloaded")
    standby.kill()
    await borders.a_good_job_runs()


@pytest.mark.parametrize("user", ["", "stranger"], ids=["nobody", "a-stranger"])
async def test_nats_takes_nobody_without_credentials(user: str, place: Place) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", place.nats.port)
    try:
        async with asyncio.timeout(20):
            await reader.readline()
            options = f'{{"user":"{user}","pass":"guess"}}' if user else "{}"
            writer.write(f"CONNECT {options}\r\nPING\r\n".encode())
            assert b"Authorization Violation" in await reader.readline()
    finally:
        writer.close()
