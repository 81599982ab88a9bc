"""The run of the demo: a cluster comes up, jobs come in, and it is over when all have completed.

`Demo.play` is what `pumice demo` does between starting and stopping the local stack. It creates
jobs as a user would, and otherwise only looks: what is told and shown is folded from watches.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pumice.demo import cast
from pumice.demo.cast import Role
from pumice.demo.feed import Feed
from pumice.demo.model import Change, Moment, Scene
from pumice.demo.options import DEADLINE_S
from pumice.demo.sentences import Sentence, Tone, plural, tell
from pumice.demo.summary import what_is_missing
from pumice.demo.teller import Teller
from pumice.demo.view import Picture
from shared.api.kinds import JOB
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError
from shared.runtime.tasks import TaskGroup

_ACT_S: Final = 5.0
"""The next act begins after this at the latest, whatever has become of the one before."""
_LOG_KEPT: Final = 200


class DemoError(Exception):
    """The demo did not get to its end; the text gives the last state, in one or more lines."""


class Demo:
    """One run against an API server on which a local stack is up."""

    def __init__(
        self,
        *,
        kube: Kube,
        teller: Teller,
        clock: Clock,
        began_s: float,
        versions: str,
        deaths: Callable[[], Sequence[str]],
    ) -> None:
        """`began_s` is the monotonic zero of all times; `deaths` names programs that have ended."""
        self.scene = Scene()
        self._kube = kube
        self._teller = teller
        self._clock = clock
        self._began_s = began_s
        self._versions = versions
        self._deaths = deaths
        self._feed = Feed(kube, take=self._take, trouble=self._note)
        self._moments: list[Moment] = []
        self._log: deque[Sentence] = deque(maxlen=_LOG_KEPT)
        self._own_sentences: list[Sentence] = []
        self._expected: list[str] = []

    async def play(self, *, deadline_s: float = DEADLINE_S, jobs: Path = cast.FILES) -> None:
        """Submit the jobs of a folder and show them until all have completed.

        Raises DemoError that says how far each job has come.
        """
        acts = cast.acts(jobs)
        self._expected = [role.key for act in acts for role in act]
        wrong = ""
        try:
            async with asyncio.timeout(deadline_s):
                wrong = await self._run(acts)
        except* TimeoutError:
            wrong = f"not all jobs have completed within {deadline_s:g} s"
        except* PumiceError as group:
            wrong = "; ".join(str(error) for error in _leaves(group))
        self._glance()
        if missing := what_is_missing(self.scene, self._expected):
            wrong = wrong or f"{plural(len(missing), 'job')} did not complete"
            raise DemoError("\n".join([wrong, *(f"  {line}" for line in missing)]))
        await self._clock.sleep(self._teller.linger_s)

    async def _run(self, acts: Sequence[Sequence[Role]]) -> str:
        """Return "" when every job has ended, else which program has died."""
        async with TaskGroup() as tasks:
            watching = tasks.create_task(self._feed.run(), name="watches")
            acting = tasks.create_task(self._act(acts), name="acts")
            dead: Sequence[str] = ()
            while self.scene.unfinished(self._expected) and not dead:
                await self._clock.sleep(self._teller.glance_s)
                self._glance()
                dead = self._deaths()
            watching.cancel()
            acting.cancel()
        return "; ".join(dead)

    def now_s(self) -> float:
        """Return the seconds since the demo began."""
        return self._clock.monotonic() - self._began_s

    def _glance(self) -> None:
        moments = [*self._moments, *self.scene.settle(self.now_s())]
        sentences = [*tell(moments, self.scene), *self._own_sentences]
        self._moments.clear()
        self._own_sentences.clear()
        self._log.extend(sentences)
        self._teller.show(
            Picture(
                scene=self.scene,
                log=list(self._log),
                expected=len(self._expected),
                now_s=self.now_s(),
                versions=self._versions,
            )
        )
        self._teller.tell(sentences)

    async def _act(self, acts: Sequence[Sequence[Role]]) -> None:
        """Submit the jobs act by act."""
        await self._feed.ready.wait()
        for act in acts:
            for role in act:
                await self._kube.create(JOB, role.key.partition("/")[0], role.manifest)
            latest = self._clock.monotonic() + _ACT_S
            while self._clock.monotonic() < latest and not self._all_placed(act):
                await self._clock.sleep(self._teller.glance_s)

    def _all_placed(self, roles: Sequence[Role]) -> bool:
        gangs = [self.scene.gangs.get(role.key) for role in roles]
        return all(gang is not None and gang.placed >= max(gang.minimum, 1) for gang in gangs)

    def _take(self, change: Change) -> None:
        self._moments += self.scene.fold(change, self.now_s())

    def _note(self, text: str) -> None:
        self._own_sentences.append(
            Sentence(at_s=self.now_s(), subject="cluster", text=text, tone=Tone.BAD)
        )


def _leaves(group: BaseExceptionGroup[PumiceError]) -> list[PumiceError]:
    """Return the errors of a group of groups."""
    return [
        leaf
        for inner in group.exceptions
        for leaf in (_leaves(inner) if isinstance(inner, BaseExceptionGroup) else [inner])
    ]
