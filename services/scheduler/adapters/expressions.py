"""Evaluates CEL conditions on devices in another process, and caches the results.

Requests come from the deciding thread, which reads known results and does not wait. Another thread
passes them to a process with hard limits, one namespace after the other, so a tenant with many or
costly expressions delays only itself. An expression that exceeds a limit is remembered, so that it
runs once, even if the process dies (ADR 42).
"""

import asyncio
import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Final
from weakref import WeakSet

from typing_extensions import override

from services.scheduler.adapters.expression_process import (
    EvaluatorUnavailable,
    Exceeded,
    ExpressionProcess,
)
from services.scheduler.cel.limits import ExpressionLimits
from services.scheduler.policy.devices.selectors import (
    LETTERS,
    DeviceContent,
    Evaluator,
    SelectorFault,
    Verdict,
    shown,
)
from shared.runtime.clock import SystemClock
from shared.runtime.logs import Logger
from shared.runtime.quarantine import describe

KNOWN_MAX: Final = 200_000
"""Verdicts that are kept, and letters of their expressions (`LETTERS`); beyond, those of the
expressions that were asked about first go."""
EXCEEDED_MAX: Final = 10_000
"""Expressions beyond their limit that are remembered."""
QUEUED_MAX: Final = 20_000
"""Questions of one namespace that wait, and letters of their expressions (`LETTERS`); more are put
again after these."""
OWNERS_MAX: Final = 10_000
TURN_S: Final = 0.02
"""A turn has so many devices as took so long before, one at least."""
_TURN_MAX: Final = 64
_TELL_S: Final = 0.05
"""Minimum interval of notifications while more requests wait."""
_RETRY_S: Final = 5.0
"""Pause before a process is started again that could not be."""

_now: Final = SystemClock().monotonic
"""Processes take real time, in a simulation, too."""
Devices = OrderedDict[bytes, bytes]
"""Digest → content."""
_DIGEST_BYTES: Final = 16


def _digest(expression: str) -> bytes:
    """Return the digest of an expression for the cache: expressions may have 10 KiB."""
    return blake2b(expression.encode(errors="replace"), digest_size=_DIGEST_BYTES).digest()


_living: "WeakSet[ExpressionEvaluator]" = WeakSet()
_holding_still: "list[ExpressionEvaluator]" = []


def _before_fork() -> None:
    _holding_still.extend(_living)
    for each in _holding_still:
        each.forking()


def _after_fork(*, in_child: bool) -> None:
    while _holding_still:
        _holding_still.pop().forked(in_child=in_child)


# A question to visibility is answered in a fork (ADR 41).
os.register_at_fork(
    before=_before_fork,
    after_in_parent=partial(_after_fork, in_child=False),
    after_in_child=partial(_after_fork, in_child=True),
)


class ExpressionEvaluator(Evaluator):
    """Cached results, and the thread that evaluates others."""

    def __init__(
        self,
        *,
        wait_s: float = 0.0,
        limits: ExpressionLimits | None = None,
        news: Callable[[], None] = lambda: None,
        log: Logger | None = None,
    ) -> None:
        """Limit the total wait of a session for results; `news` is called for new ones.

        `news` is called in the evaluator's thread.
        """
        self._wait_s = wait_s
        self._left_s = wait_s
        self._process = ExpressionProcess(limits or ExpressionLimits())
        self._news = news
        self._log = log
        self._condition = threading.Condition()
        """Guards all that follows."""
        self._known: OrderedDict[str, dict[bytes, Verdict]] = OrderedDict()
        self._size = 0
        self._exceeded: OrderedDict[bytes, SelectorFault] = OrderedDict()
        """By digests of expressions."""
        self._queues: OrderedDict[str, OrderedDict[str, Devices]] = OrderedDict()
        """Namespace → expression → devices, in the order in which they get their turns."""
        self._queued: dict[str, int] = {}
        """Namespace → its questions that wait, and letters of their expressions."""
        self._cost_s: OrderedDict[bytes, float] = OrderedDict()
        """Digest of an expression → what it took for a device in its last turn."""
        self._thread: threading.Thread | None = None
        self._closed = False
        self._told_at = 0.0
        self._failure = ""
        """Why the last turn was not evaluated."""
        _living.add(self)

    @property
    def pid(self) -> int | None:
        """Return the id of the process, None while there is none."""
        return self._process.pid

    # --- called by the deciding thread ----------------------------------------------------

    @property
    @override
    def failure(self) -> str:
        return self._failure

    @override
    def begin(self) -> None:
        """Begin a session, which may wait again."""
        self._left_s = self._wait_s

    @override
    def verdict(self, owner: str, expression: str, device: DeviceContent) -> Verdict | None:
        """Return the verdict if it is known, or becomes known while the session may wait."""
        with self._condition:
            found = self._find(expression, device.digest)
            if found is None and not self._closed:
                self._enqueue(owner, expression, device)
                found = self._wait_for(expression, device.digest)
        return found

    def _find(self, expression: str, digest: bytes) -> Verdict | None:
        fault = self._exceeded.get(_digest(expression)) if self._exceeded else None
        return fault or self._known.get(expression, {}).get(digest)

    def _wait_for(self, expression: str, digest: bytes) -> Verdict | None:
        while (found := self._find(expression, digest)) is None and self._left_s > 0:
            if self._failure:
                break  # the next attempt may be long in coming, and fail as well
            begun = _now()
            self._condition.wait(self._left_s)
            self._left_s -= _now() - begun
        return found

    def _enqueue(self, owner: str, expression: str, device: DeviceContent) -> None:
        if self._queued.get(owner, 0) >= QUEUED_MAX or (
            owner not in self._queues and len(self._queues) >= OWNERS_MAX
        ):
            return
        expressions = self._queues.setdefault(owner, OrderedDict())
        devices = expressions.get(expression)
        if devices is None:
            devices = expressions[expression] = Devices()
            self._queued[owner] = self._queued.get(owner, 0) + len(expression) // LETTERS
        if device.digest in devices:
            return
        devices[device.digest] = device.encoded
        self._queued[owner] += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="expressions", daemon=True)
            self._thread.start()
        self._condition.notify_all()

    def forking(self) -> None:
        """Hold still while this process forks."""
        self._condition.acquire()

    def forked(self, *, in_child: bool) -> None:
        """Continue after a fork. A child has only the cached results: no thread, no process."""
        self._closed = self._closed or in_child
        self._condition.release()

    def end(self) -> None:
        """Have the thread end the process and itself, without waiting for it.

        It may be waiting for an answer, or for a process to start.
        """
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def close(self) -> None:
        """End thread and process, and wait until they have ended."""
        self.end()
        if self._thread is not None:
            self._thread.join()

    # --- in the evaluator's thread ---------------------------------------------------------------

    def _run(self) -> None:
        while (turn := self._next_turn()) is not None:
            self._take_turn(*turn)
        self._process.close()

    def _take_turn(self, expression: str, devices: Devices) -> None:
        begun, done = _now(), 0
        try:
            answers = self._process.answers(expression, list(devices.values()))
            for digest, result in zip(devices, answers, strict=False):
                verdict = SelectorFault(result) if isinstance(result, str) else result
                self._learn(expression, digest, verdict)
                done += 1
        except Exceeded as error:
            self._remember(expression, f"the expression has taken {error} for one device")
        except EvaluatorUnavailable as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - without this thread nothing is evaluated
            self._process.close()
            self._fail(describe(error))
        else:
            self._note_cost(expression, (_now() - begun) / max(1, done))
        self._report()

    def _next_turn(self) -> tuple[str, Devices] | None:
        """Wait for questions; return those of the next namespace, about one expression."""
        with self._condition:
            while not self._queues and not self._closed:
                self._condition.wait()
            if self._closed:
                return None
            owner, expressions = self._queues.popitem(last=False)
            expression, waiting = expressions.popitem(last=False)
            most = self._turn_size(expression)
            devices: Devices = OrderedDict()
            taken = 0
            while waiting and len(devices) < most:
                digest, content = waiting.popitem(last=False)
                taken += 1
                if self._find(expression, digest) is None:
                    devices[digest] = content
            self._queued[owner] -= taken
            if waiting:
                expressions[expression] = waiting
            else:
                self._queued[owner] -= len(expression) // LETTERS
            if expressions:
                self._queues[owner] = expressions  # behind all others
            else:
                del self._queued[owner]
            return expression, devices

    def _turn_size(self, expression: str) -> int:
        cost_s = self._cost_s.get(_digest(expression))
        return 1 if cost_s is None else max(1, min(_TURN_MAX, int(TURN_S / max(cost_s, 1e-6))))

    def _note_cost(self, expression: str, cost_s: float) -> None:
        self._cost_s[_digest(expression)] = cost_s
        if len(self._cost_s) > EXCEEDED_MAX:
            self._cost_s.popitem(last=False)

    def _learn(self, expression: str, digest: bytes, verdict: Verdict) -> None:
        with self._condition:
            self._failure = ""
            known = self._known.get(expression)
            if known is None:
                known = self._known[expression] = {}
                self._size += len(expression) // LETTERS
            self._size += digest not in known
            known[digest] = verdict
            while self._size > KNOWN_MAX:
                oldest, verdicts = self._known.popitem(last=False)
                self._size -= len(oldest) // LETTERS + len(verdicts)
            self._condition.notify_all()

    def _remember(self, expression: str, text: str) -> None:
        if self._log is not None:
            self._log.warning("cel_limit_exceeded", expression=shown(expression), reason=text)
        with self._condition:
            self._failure = ""
            self._exceeded[_digest(expression)] = SelectorFault(f"CEL limit exceeded: {text}")
            if len(self._exceeded) > EXCEEDED_MAX:
                self._exceeded.popitem(last=False)
            self._condition.notify_all()

    def _fail(self, reason: str) -> None:
        """Note why a turn was not evaluated, and wait before the next one."""
        if self._log is not None:
            self._log.error("expressions_not_evaluated", reason=reason)
        with self._condition:
            self._failure = reason
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._closed, timeout=_RETRY_S)

    def _report(self) -> None:
        now = _now()
        if not self._queues or now - self._told_at >= _TELL_S:
            self._told_at = now
            self._news()


class Expressions:
    """A part of the service: its evaluator, which wakes the scheduler when it has results."""

    name: Final = "expressions"

    def __init__(self, *, wait_s: float, changed: Callable[[], None], log: Logger) -> None:
        self._changed = changed
        self._loop: asyncio.AbstractEventLoop | None = None
        self.evaluator = ExpressionEvaluator(wait_s=wait_s, news=self._wake, log=log)

    async def run(self) -> None:
        """Pass news on until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.Event().wait()
        finally:
            self._loop = None
            self.evaluator.end()

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._changed)


_shared: ExpressionEvaluator | None = None


def waiting_evaluator() -> ExpressionEvaluator:
    """Return the evaluator of this process whose sessions wait for verdicts.

    For programs that decide once: tests, the simulation, a recorded cycle.
    """
    global _shared  # noqa: PLW0603 - one process for all of a program's cluster states
    if _shared is None:
        _shared = ExpressionEvaluator(wait_s=60.0)
        atexit.register(_shared.close)
    return _shared
