"""The run of the demo: a cluster comes up, jobs come in, and it is over when all have completed.

`Demo.play` is what `pumice demo` does between starting and stopping the local stack. It creates
jobs as a user would, and otherwise only reads: `WatchFeed` folds the API server's watches into the
scene, and nothing is shown from other sources.

The files of the jobs are copies of those in `examples/`, made by `make crds`, so that an installed
demo has them, too. Their annotations set when the fake kubelets end their pods.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pumice.demo import DEADLINE_S
from pumice.demo.model import Moment, Scene, Seen, WatchChange, WatchOp
from pumice.demo.output import Output
from pumice.demo.sentences import Sentence, Severity, sentences_of
from pumice.demo.summary import what_is_missing
from pumice.demo.view import DemoFrame
from pumice.local.errors import LocalError
from shared.api.kinds import JOB, NODE, POD, PODGROUP, Kind
from shared.kube.client import Kube
from shared.kube.decode import ChangeOp
from shared.kube.listwatch import Bookmark, Changed, Listed, ListWatch, Malformed, Unavailable
from shared.model.numbers import plural
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError, leaves
from shared.runtime.tasks import TaskGroup

KINDS: Final = (NODE, JOB, PODGROUP, POD)


class WatchFeed:
    """The watches of one API server; `run` them in a task and read `ready`."""

    def __init__(
        self, kube: Kube, *, take: Callable[[WatchChange], None], failure: Callable[[str], None]
    ) -> None:
        """`take` gets each change, `failure` a line when something cannot be watched."""
        self._kube = kube
        self._take = take
        self._report_failure = failure
        self._listed: set[str] = set()
        self.ready = asyncio.Event()
        """Set when all kinds have been listed once."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with TaskGroup() as tasks:
            for kind in KINDS:
                tasks.create_task(self._watch(kind), name=f"watch {kind.plural}")

    async def _watch(self, kind: Kind) -> None:
        known: dict[str, Seen] = {}
        async with aclosing(ListWatch(self._kube, kind).items()) as items:
            async for item in items:
                match item:
                    case Listed():
                        for change in changes_of_list(known, item.items):
                            self._take(change)
                        self._listed.add(kind.plural)
                        if len(self._listed) == len(KINDS):
                            self.ready.set()
                    case Changed():
                        self._change(known, item)
                    case Malformed():
                        self._report_failure(f"{kind.kind} {item.metadata.key}: {item.error}")
                    case Unavailable():
                        self._report_failure(f"cannot watch {kind.plural}: {item.message}")
                    case Bookmark():
                        pass

    def _change(self, known: dict[str, Seen], item: Changed) -> None:
        obj: Seen = item.object
        if item.op is ChangeOp.DELETED:
            known.pop(obj.metadata.key, None)
            self._take(WatchChange(op=WatchOp.GONE, obj=obj))
        else:
            known[obj.metadata.key] = obj
            self._take(WatchChange(op=WatchOp.SEEN, obj=obj))


def changes_of_list(known: dict[str, Seen], items: list[Seen]) -> Iterator[WatchChange]:
    """Yield the changes between the objects `known` by key and a whole list; updates `known`.

    An object that was deleted and created again between two lists yields both changes.
    """
    listed = {obj.metadata.key: obj for obj in items}
    for key, before in list(known.items()):
        if key not in listed or listed[key].metadata.uid != before.metadata.uid:
            del known[key]
            yield WatchChange(op=WatchOp.GONE, obj=before)
    for key, obj in listed.items():
        known[key] = obj
        yield WatchChange(op=WatchOp.SEEN, obj=obj)


FILES: Final = Path(__file__).with_name("jobs")
WAVES: Final = (
    ("tensorflow-dist-mnist.yaml", "demo/twenty-together.yaml", "demo/mpi.yaml"),
    ("demo/elastic.yaml",),
    ("demo/waits-for-room.yaml",),
)
"""Submitted one wave after the other, each once the gangs before it have a place: so the elastic
gang finds some room, and the last one none."""

NAMESPACE: Final = "default"


class DemoJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the demo."""

    key: str
    """`namespace/name`."""
    manifest: dict[str, Any]


def waves(directory: Path = FILES) -> list[list[DemoJob]]:
    """Read the jobs of each wave. Raises LocalError naming a file that is missing or no job."""
    return [[_demo_job(directory / file) for file in files] for files in WAVES]


def _demo_job(path: Path) -> DemoJob:
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        name = manifest["metadata"]["name"]
    except FileNotFoundError:
        raise LocalError(f"{path} is missing; install Pumice again") from None
    except (yaml.YAMLError, KeyError, TypeError) as exc:
        raise LocalError(f"{path} is no job: {exc}") from exc
    namespace = manifest["metadata"].get("namespace", NAMESPACE)
    return DemoJob(key=f"{namespace}/{name}", manifest=manifest)


_WAVE_S: Final = 5.0
"""The next wave begins after this at the latest, even if the one before has not ended."""
_LOG_KEPT: Final = 200


class DemoError(Exception):
    """The demo did not get to its end; the text gives the last state, in one or more lines."""


class Demo:
    """One run against an API server on which a local stack is up."""

    def __init__(
        self,
        *,
        kube: Kube,
        output: Output,
        clock: Clock,
        began_s: float,
        versions: str,
        deaths: Callable[[], Sequence[str]],
    ) -> None:
        """`began_s` is the monotonic zero of all times; `deaths` names programs that have ended."""
        self.scene = Scene()
        self._kube = kube
        self._output = output
        self._clock = clock
        self._began_s = began_s
        self._versions = versions
        self._deaths = deaths
        self._feed = WatchFeed(kube, take=self._take, failure=self._note)
        self._moments: list[Moment] = []
        self._log: deque[Sentence] = deque(maxlen=_LOG_KEPT)
        self._own_sentences: list[Sentence] = []
        self._expected: list[str] = []

    async def play(self, *, deadline_s: float = DEADLINE_S, jobs: Path = FILES) -> None:
        """Submit the jobs of a folder and show them until all have completed.

        Raises DemoError that says how far each job has come.
        """
        to_come = waves(jobs)
        self._expected = [job.key for wave in to_come for job in wave]
        wrong = ""
        try:
            async with asyncio.timeout(deadline_s):
                wrong = await self._run(to_come)
        except* TimeoutError:
            wrong = f"not all jobs have completed within {deadline_s:g} s"
        except* PumiceError as group:
            wrong = "; ".join(str(error) for error in leaves(group))
        self._refresh()
        if missing := what_is_missing(self.scene, self._expected):
            wrong = wrong or f"{plural(len(missing), 'job')} did not complete"
            raise DemoError("\n".join([wrong, *(f"  {line}" for line in missing)]))
        await self._clock.sleep(self._output.linger_s)

    async def _run(self, to_come: Sequence[Sequence[DemoJob]]) -> str:
        """Return "" when every job has ended, else which program has died."""
        async with TaskGroup() as tasks:
            watching = tasks.create_task(self._feed.run(), name="watches")
            submitting = tasks.create_task(self._submit(to_come), name="waves")
            dead: Sequence[str] = ()
            while self.scene.unfinished(self._expected) and not dead:
                await self._clock.sleep(self._output.refresh_s)
                self._refresh()
                dead = self._deaths()
            watching.cancel()
            submitting.cancel()
        return "; ".join(dead)

    def now_s(self) -> float:
        """Return the seconds since the demo began."""
        return self._clock.monotonic() - self._began_s

    def _refresh(self) -> None:
        moments = [*self._moments, *self.scene.settle(self.now_s())]
        sentences = [*sentences_of(moments, self.scene), *self._own_sentences]
        self._moments.clear()
        self._own_sentences.clear()
        self._log.extend(sentences)
        self._output.show(
            DemoFrame(
                scene=self.scene,
                log=list(self._log),
                expected=len(self._expected),
                now_s=self.now_s(),
                versions=self._versions,
            )
        )
        self._output.report(sentences)

    async def _submit(self, to_come: Sequence[Sequence[DemoJob]]) -> None:
        """Submit the jobs wave by wave."""
        await self._feed.ready.wait()
        for wave in to_come:
            for job in wave:
                await self._kube.create(JOB, job.key.partition("/")[0], job.manifest)
            latest = self._clock.monotonic() + _WAVE_S
            while self._clock.monotonic() < latest and not self._all_placed(wave):
                await self._clock.sleep(self._output.refresh_s)

    def _all_placed(self, jobs: Sequence[DemoJob]) -> bool:
        gangs = [self.scene.gangs.get(job.key) for job in jobs]
        return all(gang is not None and gang.placed >= max(gang.minimum, 1) for gang in gangs)

    def _take(self, change: WatchChange) -> None:
        self._moments += self.scene.fold(change, self.now_s())

    def _note(self, text: str) -> None:
        self._own_sentences.append(
            Sentence(at_s=self.now_s(), subject="cluster", text=text, severity=Severity.BAD)
        )
