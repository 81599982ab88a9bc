"""Task helpers that asyncio lacks, or lacks in the older Python versions that Pumice supports.

Before Python 3.13 a `asyncio.TaskGroup` whose child fails while the group waits for its children
cancels the task that it runs in and never takes that back: `cancelling()` of the task stays at 1
permanently. Nothing shows it at first, but on 3.11.2 the next `asyncio.timeout` of that task raises
CancelledError in place of TimeoutError, and the task ends silently. A cancellation that arrives at
the moment of a failure is lost as well. `TaskGroup` repairs both; a test holds all code to it.

On every Python a group takes a child that ends with CancelledError for one that was cancelled,
though it may have awaited a cancelled future of a library: the group would go on without it. Here
that is a failure.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from typing_extensions import override

from shared.runtime.clock import Clock
from shared.runtime.errors import Broken

T = TypeVar("T")

_IS_FIXED_UPSTREAM: Final = sys.version_info >= (3, 13)


class TaskGroup(asyncio.TaskGroup):
    """The TaskGroup of Python 3.13 on every Python: a failed group leaves no mark on its task."""

    @override
    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Start a child; one that ends cancelled without a request is a failure."""
        task = super().create_task(
            _checked(cast("Awaitable[T]", coro)), name=name, context=context, **options
        )
        task.add_done_callback(lambda _: coro.close())  # one that was cancelled before it began
        return task

    @override
    async def __aexit__(
        self,
        et: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Wait for the children and raise what failed, as the standard library's does."""
        before = self._cancelled_its_task
        try:
            await super().__aexit__(et, exc, tb)
        except BaseExceptionGroup:
            self._restore_cancellation(before=before)
            raise

    @property
    def _cancelled_its_task(self) -> bool:
        return bool(getattr(self, "_parent_cancel_requested", False))

    def _restore_cancellation(self, *, before: bool) -> None:
        """Take back the group's own cancellation, and keep one that came from outside."""
        task = asyncio.current_task()
        if _IS_FIXED_UPSTREAM or task is None:
            return
        if self._cancelled_its_task and not before:
            task.uncancel()
        if task.cancelling():
            task.uncancel()
            task.cancel()


async def _checked(coro: Awaitable[T]) -> T:
    task = asyncio.current_task()
    try:
        return await coro
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling() == 0:
            raise Broken(f"task {task.get_name()} was cancelled without being told") from error
        raise


def raise_if_cancelled() -> None:
    """Raise CancelledError if the present task was told to end and a library has hidden it.

    nats-py does when it is cancelled while it closes a connection: a loop that goes on then would
    never end, and its process with it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def in_own_task(run: Callable[[], Coroutine[Any, Any, T]], *, name: str) -> T:
    """Run `run` in a task of its own, and return or raise as if it had been awaited here.

    A cancellation, a time-out or a context variable that was not reset ends with that task. A
    cancellation of the caller is passed on to it.
    """
    return await asyncio.create_task(run(), name=name)


async def sleep_or_event(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Return after `seconds`, or earlier when `event` is set; says whether it is set."""
    async with TaskGroup() as group:
        sleeping = group.create_task(clock.sleep(seconds), name="sleep")
        waiting = group.create_task(event.wait(), name="event")
        sleeping.add_done_callback(lambda _: waiting.cancel())
        waiting.add_done_callback(lambda _: sleeping.cancel())
    return event.is_set()


async def in_thread(executor: Executor, work: Callable[[], T]) -> T:
    """Run `work` in a thread of an executor and wait for its end, cancelled or not.

    A cancelled caller must not leave a thread behind that still changes the caller's data.
    """
    future = asyncio.get_running_loop().run_in_executor(executor, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise
