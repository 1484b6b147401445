"""Virtual time: an asyncio loop whose clock jumps to the next event, and processes in
it that can be stopped.

Nothing in this module waits. Two runs that schedule the same events in the same order
are identical.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

LONGEST_GAP_SECONDS = 2.0
_INSIDE: ContextVar["SimulatedProcess | None"] = ContextVar(
    "simulated_process", default=None
)


class SimulatedProcess:
    """A simulated process that can be hit by a SIGKILL, a SIGSTOP or a loss of power.
    Its callbacks and tasks stop with it."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self._loop = loop
        self._context = copy_context()
        self._context.run(_INSIDE.set, self)
        self._stops: list[list[float]] = []  # from, until
        self._waiting: list[tuple[Context, Callable[..., object], tuple[Any, ...]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def after(
        self, seconds: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.Handle:
        """Call the callback after this time, if the process is still alive then; if it
        is paused, after it resumes."""
        return self._loop.call_later(seconds, callback, *args, context=self._context)

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Run the callback in the process: now, or when the process resumes."""
        self._context.copy().run(self.dispatch, callback, args)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(
            self._loop.create_task(coroutine, context=self._context.copy())
        )

    def kill(self) -> None:
        """Kill the process: it runs no further instruction, no handler and no
        `finally`."""
        self.alive = False
        self._waiting.clear()

    def pause(self) -> None:
        if not self.paused:
            self._stops.append([self._loop.time(), float("inf")])
        self.paused = True

    def stopped_seconds(self, since: float, until: float) -> float:
        """Return for how many seconds the process was paused between the two times. The
        first LONGEST_GAP_SECONDS of each pause do not count, because a process may not
        notice such a short pause."""
        longs = (min(until, end) - max(since, start) for start, end in self._stops)
        return sum(max(0.0, seconds - LONGEST_GAP_SECONDS) for seconds in longs)

    def resume(self) -> None:
        """Resume the process; calls that arrived during the pause run first, in the
        order of their arrival."""
        if self.paused:
            self._stops[-1][1] = self._loop.time()
        self.paused = False
        pending_calls, self._waiting = self._waiting, []
        for context, callback, args in pending_calls:
            self._loop.call_soon(callback, *args, context=context)

    def dispatch(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if self.paused:
            self._waiting.append((copy_context(), callback, args))
        else:
            callback(*args)


def inside() -> SimulatedProcess | None:
    """Return the process whose code is running now; None outside of all processes."""
    return _INSIDE.get()


# no timer is finer: a loop that naps for nothing still lets time pass
TICK_SECONDS = 1e-6


class _NoFiles:
    """Replacement for the event loop's file selector. Where a real loop would sleep
    until a file is ready, it advances the virtual clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, seconds: float | None) -> list[Any]:
        if seconds is None:
            raise RuntimeError(
                "nothing is left to run: all tasks wait and no timer is set"
            )
        self._loop.pass_seconds(seconds)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """The asyncio event loop of a simulated world, on virtual time. `failed` is called
    with each uncaught exception."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._now_seconds = 0.0
        self._selector = _NoFiles(self)
        self._failed = failed
        self._outside = Context()
        self._made: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make)
        self.set_exception_handler(self._on_exception)

    def _make(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Any,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, context=context)
        self._made.append(task)
        return task

    def close(self) -> None:
        """Close the unfinished coroutines that killed processes left behind, and the
        loop."""
        for task in self._made:
            if not task.done():
                task.get_coro().close()
        self._made.clear()
        super().close()

    def time(self) -> float:
        return self._now_seconds

    def pass_seconds(self, seconds: float) -> None:
        self._now_seconds += seconds

    def later(
        self, seconds: float, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call the callback after this time, even if the process that requests it ends
        or is paused."""
        self.call_later(seconds, callback, *args, context=self._outside)

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        process = context.get(_INSIDE) if context is not None else _INSIDE.get()
        if process is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(process.dispatch, callback, args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = max(when, self._now_seconds + TICK_SECONDS)
        process = context.get(_INSIDE) if context is not None else _INSIDE.get()
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, process.dispatch, callback, args, context=context)

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no files whose events could be processed."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread needs to wake the loop."""

    def _on_exception(
        self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]
    ) -> None:
        # none: a task of a killed process was thrown away
        error = context.get("exception")
        if error is not None:
            self._failed(error)
