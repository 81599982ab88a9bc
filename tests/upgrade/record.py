"""`python -m tests.upgrade.record NAME REVISION`: keeps how a release talks, for those after it.

Its services run on a real control plane, with jobs that make them say all that they say. What was
on the bus, the forms of its messages and its streams go to `tests/upgrade/releases`, folder NAME.
"""

import argparse
import asyncio
import copy
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from pumice.local.control_plane import Api as ApiServer
from shared.bus.nats import NatsBus
from shared.bus.seal import Seal
from shared.contracts.subjects import Subjects
from tests.support import world
from tests.support.api import Api, ApiError, connect
from tests.support.bus import admin_bus
from tests.support.fleet import Fleet, fleet
from tests.support.valid_objects import VALID_OBJECTS
from tests.support.wait import until
from tests.upgrade.former import CLASSES, CLUSTER, FOLDER
from tests.upgrade.release import ROOT, Release, commit_of, made
from tests.upgrade.sample import Samples
from tests.upgrade.stage import stage

PREEMPT = ROOT / "tests" / "sim" / "preempt.yaml"
NAMESPACE = "recorded"
SLOW_S = 200.0
"""For each step: nothing hangs on how fast the machine is."""


def main() -> int:
    """Record; the exit code is 0 when everything came."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.record", description=__doc__)
    parser.add_argument("name", help="the release's name")
    parser.add_argument("revision", help="its commit")
    parser.add_argument("--keep", type=Path, help="directory for the release, which stays")
    parser.add_argument("--api", choices=("real", "embedded"), default="real")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="record-") as temporary:
        folder = options.keep or Path(temporary)
        release = made(options.revision, folder)
        described = release.described(CLUSTER)
        samples, key = asyncio.run(recorded(release, described, Path(temporary), options.api))
    target = FOLDER / options.name
    target.mkdir(parents=True, exist_ok=True)
    about = {"revision": commit_of(options.revision), "state_key": key}
    (target / "release.json").write_text(json.dumps(about, indent=1) + "\n")
    (target / "messages.jsonl").write_text("\n".join(samples.lines()) + "\n")
    for part in ("messages", "bodies"):
        (target / f"forms-of-{part}.json").write_text(by_line(described[part]))
    bus = {part: described[part] for part in ("streams", "consumers")}
    (target / "streams.json").write_text(by_line(bus))
    return 0


def by_line(value: dict) -> str:
    """Return JSON with a line for each entry of each part, so that changes can be read."""
    parts = []
    for name, inner in sorted(value.items()):
        items = sorted(inner.items()) if isinstance(inner, dict) else [("", x) for x in inner]
        lines = [
            (f"{json.dumps(key)}: " if key else "") + json.dumps(item, sort_keys=True)
            for key, item in items
        ]
        opening, closing = "{}" if isinstance(inner, dict) else "[]"
        parts.append(f"{json.dumps(name)}: {opening}\n" + ",\n".join(lines) + f"\n{closing}")
    return "{" + ",\n".join(parts) + "}\n"


async def recorded(
    release: Release, described: dict, directory: Path, on_api: ApiServer
) -> tuple[Samples, str]:
    """Return samples of what a release says, and the key that seals some of it."""
    async with AsyncExitStack() as stack:
        on = await stack.enter_async_context(stage(directory / "plane", release, on_api))
        api = await stack.enter_async_context(connect(on.plane.kubeconfig))
        services = await stack.enter_async_context(fleet(on.plane, directory, forked=False))
        declarer = await services.start("declarer", python=release.python, wait=False)
        await declarer.ready(deadline_s=SLOW_S)
        key = on.nats.environ("cache")["PUMICE_CACHE_STATE_KEY"]
        samples = Samples(Seal(key))
        bus = await stack.enter_async_context(admin_bus(on.nats))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        following = tasks.create_task(samples.follow(bus), name="samples")
        await Course(release, services, api, bus, samples).run(described)
        following.cancel()
    return samples, key


class Course:
    """The life that is recorded: binds, an eviction, statuses, refusals, ends."""

    def __init__(
        self, release: Release, services: Fleet, api: Api, bus: NatsBus, samples: Samples
    ) -> None:
        self._python = release.python
        self._services = services
        self._api = api
        self._bus = bus
        self._samples = samples

    async def run(self, described: dict) -> None:
        """Return when there is a message of each class."""
        await world.add_nodes(self._api, 3, cpu="4")
        await self._api.create("namespaces", {"metadata": {"name": NAMESPACE}})
        for name in ("cache", "controller", "scheduler"):
            flags = {"scheduler_conf": str(PREEMPT)} if name == "scheduler" else {}
            await self._services.start(name, python=self._python, wait=False, **flags)
        await self._objects()
        await self._jobs()
        wanted = {*CLASSES, *(f"state.{kind} put" for kind in VALID_OBJECTS)}
        wanted &= {name for name in wanted if _told(name, described)}

        def missing() -> str:
            return f"recorded: no {sorted(wanted - self._samples.classes)}\n{self._services.logs()}"

        await until(lambda: wanted <= self._samples.classes, deadline_s=SLOW_S, describe=missing)

    async def _objects(self) -> None:
        for plural, sound in VALID_OBJECTS.items():
            root = "/apis/" if "/" in sound.version else "/api/"
            place = "" if sound.cluster else f"/namespaces/{NAMESPACE}"
            name = "node-0" if plural == "csinodes" else "sound"
            body = {
                "apiVersion": sound.version,
                "kind": sound.kind,
                "metadata": {"name": name, "labels": {"recorded": "yes"}},
                **copy.deepcopy(sound.content),
            }
            url = f"{root}{sound.version}{place}/{plural}"
            await self._api.request("POST", url, body)
        for name, value in (("low", 1), ("high", 1000)):
            await self._api.create("priorityclasses", {"metadata": {"name": name}, "value": value})

    async def _jobs(self) -> None:
        low = world.task("w", 10, annotations={"pumice.dev/run-seconds": "600"})
        job = world.job("low", low, min_available=1, priorityClassName="low", plugins={"svc": []})
        await self._api.create("jobs", job, NAMESPACE)
        nowhere = world.task("w", 1)
        nowhere["template"]["spec"]["nodeSelector"] = {"there": "is-none"}
        await self._api.create("jobs", world.job("nowhere", nowhere), NAMESPACE)
        await self._waits("command bind")
        binder = await self._services.start("binder", python=self._python, wait=False)
        await until(self._bound("low", 10), deadline_s=SLOW_S, describe=self._services.logs)
        await binder.process.stop()
        high = world.task("w", 2, cpu="4", annotations={"pumice.dev/run-seconds": "1"})
        await self._api.create("jobs", world.job("high", high, priorityClassName="high"), NAMESPACE)
        while "command evict" not in await self._samples.take_commands(self._bus):
            dying = await self._services.start(
                "binder", python=self._python, fault="binder.after-write", wait=False
            )
            await dying.died_at_its_fault(deadline_s=SLOW_S)
        publisher = self._bus.publisher("PUMICE_local_COMMAND")
        await publisher.publish(Subjects(cluster=CLUSTER).command(0), b'{"v":1,"type":"?"}')
        await self._services.start("binder", python=self._python, wait=False)
        await until(self._bound("high", 1), deadline_s=SLOW_S, describe=self._services.logs)
        await self._end("jobs", "low")

    async def _waits(self, name: str) -> None:
        async def there() -> bool:
            return name in await self._samples.take_commands(self._bus)

        await until(there, deadline_s=SLOW_S, describe=lambda: f"{name}\n{self._services.logs()}")

    def _bound(self, job: str, count: int):
        async def bound() -> bool:
            pods = await self._api.items("pods", NAMESPACE)
            placed = [p for p in pods if p["metadata"]["name"].startswith(f"{job}-")]
            return sum("nodeName" in pod["spec"] for pod in placed) >= count

        return bound

    async def _end(self, plural: str, name: str) -> None:
        try:
            await self._api.delete(plural, NAMESPACE, name)
        except ApiError as error:
            raise AssertionError(f"{plural} {name}: {error}") from error


def _told(name: str, described: dict) -> bool:
    """Tell whether a release has messages of a class at all."""
    kind = name.removeprefix("state.").partition(" ")[0]
    return not name.endswith(" put") or kind in described["bodies"]["types"]


if __name__ == "__main__":
    sys.exit(main())
