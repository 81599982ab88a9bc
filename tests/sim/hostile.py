"""Hostile objects beside a healthy workload: a workload of the simulation.

What tenants may write is created first, then what administrators may, each with a status where one
can be given, and each is changed again and again. Gangs with a queue and nodes of their own must
complete meanwhile; then all that is hostile goes, and nothing may be left quarantined. What an
admission review of each object would say is asked as well.
"""

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

from pumice.embedded.apiserver.replies import ApiReply, ApiRequest
from services.admission.adapters.server import answer, read_review
from services.admission.rules.catalogue import HOOKS
from services.admission.rules.review import ReviewFacts, Terms
from shared.api import kinds
from shared.api.lenient import lenient
from shared.api.scheduling import Queue
from tests.sim.hostile_objects import OpenApi, Planted, address, as_json, draw_objects
from tests.sim.valid_objects import TENANT, VALID_OBJECTS
from tests.support import world

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

NAMESPACE: Final = "hostile"
HEALTHY: Final = "healthy"
COUNT: Final = 60
"""Hostile objects of tenants, and as many of administrators."""
CHANGES: Final = 20
IN_TIME_S: Final = 60.0
SHOWN_S: Final = 75.0
"""Longer than a service that is not told of deletions shows what it quarantined."""


ANY: Final = re.compile("")
OURS: Final = re.compile(r"[A-Z]\w*: ")
"""An error that nobody has foreseen begins with its class; what cannot be read or sent is told."""


class Attack:
    """The hostile objects of one simulation."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self.api = OpenApi(self._documents())
        self.made: list[Planted] = []

    def _documents(self) -> dict[str, Any]:
        places = json.loads(self.send("GET", "/openapi/v3").body)["paths"]
        return {
            place: json.loads(self.send("GET", f"/openapi/v3/{place}").body) for place in places
        }

    def send(
        self, method: str, url: str, body: object = None, kind: str = "application/json"
    ) -> ApiReply:
        """Send a request, whatever becomes of it; the server must not fail."""
        found = self._sim.server.handle(
            ApiRequest(
                method=method,
                path=url,
                query={},
                headers={"content-type": kind},
                body=b"" if body is None else as_json(body),
            )
        )
        assert isinstance(found, ApiReply), "nobody watches here"
        if found.status >= 500:
            self._sim.judge.broken(url, f"{method} {url}: {found.status} {found.body[:300]!r}")
        return found

    def create(self, planted: Planted) -> None:
        """Create one object, if the server takes it, and give it its status."""
        review(self._sim, planted)
        made = self.send("POST", address(planted.plural, NAMESPACE), planted.body)
        if made.status >= 300:
            return
        self.made.append(planted)
        name = planted.body["metadata"]["name"]
        self._sim.story.tell("attacker", "created", plural=planted.plural, name=name)
        if planted.status is not None:
            url = address(planted.plural, NAMESPACE, name, "status")
            self.send("PATCH", url, {"status": planted.status}, "application/merge-patch+json")

    def change(self, number: int) -> None:
        """Change every object once more."""
        for planted in self.made:
            url = address(planted.plural, NAMESPACE, planted.body["metadata"]["name"])
            body = {"metadata": {"labels": {"change": str(number)}}}
            self.send("PATCH", url, body, "application/merge-patch+json")

    def delete(self) -> None:
        """Delete everything that is hostile, also what was made of it."""
        for plural, sound in VALID_OBJECTS.items():
            for item in json.loads(self.send("GET", address(plural, NAMESPACE)).body)["items"]:
                name = item["metadata"]["name"]
                if sound.cluster and not name.startswith("h0x"):
                    continue
                url = address(plural, NAMESPACE, name)
                if item["metadata"].get("finalizers"):
                    body = {"metadata": {"finalizers": None}}
                    self.send("PATCH", url, body, "application/merge-patch+json")
                self.send("DELETE", url)


def review(sim: "Simulation", planted: Planted) -> None:
    """Ask every hook about an object; each must have an answer."""
    queues = {queue["metadata"]["name"]: queue for queue in sim.cluster.items("queues")}
    facts = ReviewFacts(queues={name: lenient(queue, Queue) for name, queue in queues.items()})
    asked = {
        "uid": "u",
        "operation": "CREATE",
        "namespace": NAMESPACE,
        "object": planted.body,
        "resource": {"resource": planted.plural},
    }
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    for hook in HOOKS.values():
        if planted.plural in {plural for _, _, plural in hook.resources}:
            uid, request = read_review(as_json(whole))
            answer(uid, hook.review(request, facts, Terms()))


async def hostile(sim: "Simulation") -> None:
    """Play it."""
    create_queue_and_nodes(sim)
    attack = Attack(sim)
    cluster = [plural for plural in VALID_OBJECTS if plural not in TENANT]
    await healthy_gang(sim, "before")
    for number, plurals in enumerate((TENANT, cluster)):
        for planted in draw_objects(attack.api, plurals, COUNT, 2 * sim.seed + number):
            attack.create(planted)
            await asyncio.sleep(sim.rng.uniform(0.0, 0.1))
        await healthy_gang(sim, f"beside-{number}")
        for change in range(CHANGES):
            attack.change(change)
            await asyncio.sleep(sim.rng.uniform(0.0, 0.2))
    sim.tell("hostile objects", made=len(attack.made))
    if len(attack.made) < COUNT // 2:
        sim.judge.broken(NAMESPACE, "the server refuses nearly all: nothing is tried")
    await asyncio.sleep(10.0)
    shown = what_is_quarantined(sim)
    ours = what_is_quarantined(sim, only=OURS)
    for _ in range(3):  # what was made of them meanwhile goes, too
        attack.delete()
        await asyncio.sleep(5.0)
    await healthy_gang(sim, "after")
    await nothing_is_left(sim)
    sim.tell("quarantined", what=shown)
    for line in ours:
        sim.judge.broken(NAMESPACE, f"quarantined: {line}")


def what_is_quarantined(sim: "Simulation", only: re.Pattern[str] = ANY) -> list[str]:
    """Return a line for each key that a service has quarantined for such a reason."""
    return [
        f"{machine.instance}: {item.kind} {item.key} {item.stage}: {item.reason}"
        for machine in sim.machines
        for item in machine.quarantined.items()
        if only.match(item.reason)
    ]


async def nothing_is_left(sim: "Simulation") -> None:
    """Wait until nothing is quarantined any more."""
    end = asyncio.get_running_loop().time() + SHOWN_S
    while asyncio.get_running_loop().time() < end:
        if not what_is_quarantined(sim):
            return
        await asyncio.sleep(1.0)
    for line in what_is_quarantined(sim):
        sim.judge.broken(NAMESPACE, f"still quarantined: {line}")


def create_queue_and_nodes(sim: "Simulation") -> None:
    """Make what belongs to the healthy alone: a queue and nodes."""
    sim.cluster.create("namespaces", {"metadata": {"name": NAMESPACE}})
    queue = {
        "apiVersion": kinds.QUEUE.api_version,
        "kind": "Queue",
        "metadata": {"name": HEALTHY},
        "spec": {"weight": 1, "parent": "root"},
    }
    sim.cluster.create("queues", queue)
    for number in range(2):
        node = world.node(f"{HEALTHY}-{number}", cpu="8")
        node["metadata"]["labels"]["for"] = HEALTHY
        node["spec"] = {"taints": [{"key": "for", "value": HEALTHY, "effect": "NoSchedule"}]}
        sim.cluster.create("nodes", node)


async def healthy_gang(sim: "Simulation", name: str) -> None:
    """Submit a gang and wait until it has completed, which it must in time."""
    task = world.task("w", 4, cpu="2", annotations={"pumice.dev/run-seconds": "1.0"})
    task["template"]["spec"]["nodeSelector"] = {"for": HEALTHY}
    body = world.job(f"gang-{name}", task, queue=HEALTHY, plugins={"svc": []})
    sim.cluster.create("jobs", body, "users")
    key = f"users/gang-{name}"
    sim.expect(key, "Completed", least=4)
    end = asyncio.get_running_loop().time() + IN_TIME_S
    while asyncio.get_running_loop().time() < end:
        if sim.judge.phase(key) == "Completed":
            return
        await asyncio.sleep(0.5)
    sim.judge.broken(key, f"{key} is {sim.judge.phase(key)!r} after {IN_TIME_S:g} s")
