"""How asyncio code waits for operations and learns that a lease was lost. Its twin for blocking code is ``leasehold/_wait.py``.

The native module writes to a socket that the event loop watches; it never waits for the interpreter.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Optional, TypeVar

from .. import _native
from ..errors import CallbackFailed, OutcomeUnknownError

T = TypeVar("T")

Callbacks = Mapping[str, Callable[[int], Awaitable[Any]]]


class _Notifications:
    """Completed operations of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._queue = _native.CompletionQueue()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_key = 0
        loop.add_reader(self._queue.fileno(), self._deliver)

    def register(self, callback: Callable[[], None]) -> tuple[_native.CompletionQueue, int]:
        self._next_key += 1
        self._callbacks[self._next_key] = callback
        return self._queue, self._next_key

    def forget(self, key: int) -> None:
        self._callbacks.pop(key, None)

    def _deliver(self) -> None:
        # These callbacks only wake up or cancel tasks, or schedule code of the program: one that raised would keep others from being called.
        for key in self._queue.drain():
            callback = self._callbacks.get(key)
            if callback is not None:
                callback()


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Notifications] = weakref.WeakKeyDictionary()


def _notifications() -> _Notifications:
    loop = asyncio.get_running_loop()
    found = _by_loop.get(loop)
    if found is None:
        for other in list(_by_loop):
            if other.is_closed():
                # What still waits there refers to its loop, so nothing else deletes it. Deleted, it withdraws what it waits for.
                del _by_loop[other]
        found = _by_loop[loop] = _Notifications(loop)
    return found


async def run(
    operation: _native.Operation[T], *, callbacks: Optional[Callbacks] = None, timeout: Optional[float] = None
) -> T:
    """Waits for an operation, and executes its callbacks in this task. A canceled task cancels the operation."""
    notifications, changed = _notifications(), asyncio.Event()
    queue, key = notifications.register(changed.set)
    failed: Optional[BaseException] = None
    try:
        operation.notify(queue, key)
        while True:
            await _ready(operation, changed, timeout)
            requested = operation.requested()
            if requested is None:
                break
            name, argument = requested
            try:
                operation.reply(True, await (callbacks or {})[name](argument))
            except BaseException as error:
                failed = error
                operation.reply(False)
    except BaseException as error:
        if not isinstance(error, OutcomeUnknownError):
            operation.cancel()
        raise
    finally:
        notifications.forget(key)
    try:
        return operation.result()
    except CallbackFailed:
        if failed is None:
            raise
        raise failed from None
    except OutcomeUnknownError as error:
        raise _resolvable(error) from None


async def _ready(operation: _native.Operation[Any], changed: asyncio.Event, timeout: Optional[float]) -> None:
    """Waits for a step of an operation.

    Not with ``asyncio.wait_for``: before Python 3.12 it returns normally if the task is canceled just when the step is done, and the
    cancellation is lost.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    timer = None if deadline is None else loop.call_at(deadline, changed.set)
    try:
        while not operation.ready():
            if deadline is not None and loop.time() >= deadline:
                raise _unfinished(operation)
            changed.clear()
            await changed.wait()
    finally:
        if timer is not None:
            timer.cancel()


def _unfinished(operation: _native.Operation[Any]) -> OutcomeUnknownError:
    error = OutcomeUnknownError(
        "INDETERMINATE",
        "the request was not answered within its timeout; it may still be executed",
        "Resolve the outcome, or read the current state.",
    )
    error._resolve = lambda timeout: run(operation, timeout=timeout)
    return error


def _resolvable(error: OutcomeUnknownError) -> OutcomeUnknownError:
    resolve = error._resolve
    if resolve is not None:
        error._resolve = lambda timeout: run(resolve(None), timeout=timeout)
    return error


def map_resolved(error: OutcomeUnknownError, convert: Callable[[Any], Any]) -> OutcomeUnknownError:
    """Makes ``resolve`` return what the failed call would have returned."""
    resolve = error._resolve
    if resolve is not None:

        async def converted(timeout: Optional[float]) -> Any:
            try:
                return convert(await resolve(timeout))
            except OutcomeUnknownError as again:
                raise map_resolved(again, convert) from None

        error._resolve = converted
    return error


async def close_within(operation: _native.Operation[None], timeout: float) -> None:
    """Waits for an operation for a limited time, and gives it up then."""
    await wait_some(operation, timeout)


class Lost:
    """Set as soon as the lease was lost or its local deadline passed, and for the rest of its life. Like ``asyncio.Event``."""

    def __init__(self, native: _native.NativeLease) -> None:
        self._native = native

    def is_set(self) -> bool:
        """Whether work had to stop."""
        return self._native.stopped()

    async def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until work must stop. Returns false after the timeout."""
        if not self.is_set():
            await wait_some(self._native.wait_stopped(), timeout)
        return self.is_set()


async def wait_some(operation: _native.Operation[T], timeout: Optional[float]) -> Optional[T]:
    """The result of an operation, or none after the timeout; then it is canceled."""
    try:
        return await run(operation, timeout=timeout)
    except OutcomeUnknownError:
        operation.cancel()
        return None


def watch_stop(native: _native.NativeLease, act: Callable[[], None]) -> Callable[[], None]:
    """Acts in the event loop when work must stop. It must not raise. Returns a function that withdraws it."""
    notifications = _notifications()

    def deliver() -> None:
        notifications.forget(key)
        act()

    queue, key = notifications.register(deliver)
    native.watch(queue, key)
    return lambda: notifications.forget(key)


def call_when_stopped(native: _native.NativeLease, callback: Callable[[], Any]) -> Callable[[], None]:
    """Runs a callback of the program in the event loop when work must stop. Returns a function that withdraws it."""

    def run_callback() -> None:
        outcome = callback()
        if inspect.isawaitable(outcome):
            task = asyncio.ensure_future(outcome)
            _running.add(task)
            task.add_done_callback(_running.discard)

    # The event loop itself reports what the callback raises.
    return watch_stop(native, lambda: _call_soon(run_callback))


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


#: Tasks of callbacks. The event loop itself keeps only weak references.
_running: set[asyncio.Future[Any]] = set()


class Interruption:
    """Cancels the task of a block when its lease is lost, as ``asyncio.timeout`` does."""

    def __init__(self, native: _native.NativeLease) -> None:
        self._task = asyncio.current_task()
        self._sent = False
        self._withdraw = watch_stop(native, self._interrupt)

    def _interrupt(self) -> None:
        if self._task is not None:
            self._sent = True
            self._task.cancel()

    def end(self, raised: Optional[BaseException]) -> bool:
        """Ends the block. True if the exception is this interruption, and not a cancellation by others."""
        self._withdraw()
        if not self._sent or self._task is None:
            return False
        # Python 3.10 does not count cancellations.
        others = self._task.uncancel() if hasattr(self._task, "uncancel") else 0
        return others == 0 and isinstance(raised, asyncio.CancelledError)


def scope() -> int:
    """Identifies the task that enters and leaves a block."""
    return id(asyncio.current_task())
