"""An event loop on virtual time: one seed, one order of events, and no waiting.

What is asked to happen later happens as soon as nothing else can: the clock jumps to the next
timer. Steps of tasks that are ready together run in an order drawn from the seed, because
programs must not rely on it; other callbacks keep theirs, because asyncio promises it. There are
no sockets and no threads: work for an executor is done at once and its result comes after
`executor_delay_s`. When nothing is ready and no timer is set, the program waits for ever:
`Deadlock` says where each task waits.

Uses two private parts of asyncio, `_ready` (to shuffle) and `_selector` (to be asked how long to
wait); `tests/unit/sim` pins both.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

RESOLUTION_S: Final = 1e-9
STEP_S: Final = 1e-6
"""Virtual time that one step of a task takes: a task that polls the clock sees it move,
as on a real machine."""
MOST_STEPS: Final = 5_000_000
"""A simulation that needs more goes round in circles."""


class Deadlock(RuntimeError):  # noqa: N818 - what has happened
    """Nothing can happen any more; the text says where the tasks wait."""


class Livelock(RuntimeError):  # noqa: N818 - what happens
    """Tasks go on for ever; the text says where they are."""


class SimTask(asyncio.Task):
    """A task that knows how many were made before it: what is drawn starts from that order.

    asyncio keeps the tasks of a group in a set and cancels them in the order of their addresses,
    which no seed decides.
    """

    number: int


class SimLoop(asyncio.BaseEventLoop):
    """Make a loop; `executor_delay_s` gives how long a piece of work for an executor takes."""

    def __init__(self, seed: int, *, executor_delay_s: Callable[[], float] = lambda: 0.0) -> None:
        self._virtual_s = 0.0
        super().__init__()
        self._clock_resolution = RESOLUTION_S
        self._selector = _VirtualSelector(self)
        self._order = random.Random(f"order-{seed}")
        self._think_s = executor_delay_s
        self._made = 0
        self.set_task_factory(_make_task)
        self.complaints: list[str] = []
        """Lines that asyncio would have logged, such as failures that no task has asked for."""
        self.set_exception_handler(lambda _, context: self.complaints.append(context["message"]))
        self.steps = 0
        """Steps of tasks that have run."""

    def time(self) -> float:
        """Return the virtual time in seconds, from 0."""
        return self._virtual_s

    def pass_time(self, seconds: float | None) -> None:
        """Let time pass up to the next timer; None: there is no timer. Raises Deadlock."""
        if seconds is None:
            raise Deadlock(describe(self, "nothing can happen any more"))
        self._virtual_s += max(0.0, seconds)

    def run_in_executor(
        self, _executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do the work now; its result is there after `executor_delay_s`."""
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - it belongs to the awaiter of the work
            self.call_later(self._think_s(), _fail, future, error)
        else:
            self.call_later(self._think_s(), _resolve, future, result)
        return future

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Take no signals: processes of a simulation are told otherwise."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    def _run_once(self) -> None:
        self._shuffle()
        super()._run_once()

    def _shuffle(self) -> None:
        """Draw an order for the steps of tasks among what is ready."""
        ready = self._ready
        places = [i for i, handle in enumerate(ready) if _is_step(handle)]
        self.steps += len(places)
        self._virtual_s += len(places) * STEP_S
        if self.steps > MOST_STEPS:
            raise Livelock(describe(self, "no end in sight"))
        if len(places) < 2:
            return
        steps = sorted((ready[i] for i in places), key=_number)
        self._order.shuffle(steps)
        for i, step in zip(places, steps, strict=True):
            ready[i] = step

    def _process_events(self, event_list: list[object]) -> None:
        assert not event_list, "there is no I/O in a simulation"

    def _write_to_self(self) -> None:
        """No thread has to be woken: there is one only."""


class _VirtualSelector:
    """Stands where the selector stands, and instead of waiting moves the clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        self._loop.pass_time(timeout)
        return []


def _make_task(loop: SimLoop, coro: Any, context: Any = None, **options: Any) -> SimTask:
    """Make a task; Python 3.14 hands more to a factory, such as its name."""
    task = SimTask(coro, loop=loop, context=context, **options)
    loop._made += 1
    task.number = loop._made
    return task


def _number(handle: asyncio.Handle) -> int:
    return handle._callback.__self__.number


def _is_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), SimTask)


def _resolve(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def describe(loop: asyncio.AbstractEventLoop, what: str) -> str:
    """Return where each task of a loop waits, sorted by name."""
    lines = []
    for task in asyncio.all_tasks(loop):
        frame = task.get_coro()
        inner = frame
        while (awaited := getattr(inner, "cr_await", None)) is not None and hasattr(
            awaited, "cr_frame"
        ):
            inner = awaited
        at = getattr(inner, "cr_frame", None)
        where = f"{at.f_code.co_qualname}:{at.f_lineno}" if at else repr(inner)
        lines.append(f"  {task.get_name()}: {where}")
    return "\n".join([f"{what} at {loop.time():.3f} s", *sorted(lines)])


class SimClock:
    """A `shared.runtime.clock.Clock` on the virtual time of the running loop.

    `skew_s` is how far this machine's wall clock is off.
    """

    START: Final = 1_800_000_000.0

    def __init__(self, skew_s: float = 0.0) -> None:
        self._skew_s = skew_s

    def now(self) -> float:
        return self.START + self._skew_s + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))
