"""How blocking code waits for operations and learns that a lease was lost. Its twin for asyncio is ``aio/_wait.py``.

A thread that waits gives up the interpreter lock. It wakes up a few times per second, so that signals and interruptions reach it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional, TypeVar

from . import _native
from .errors import CallbackFailed, LeaseLostError, OutcomeUnknownError

T = TypeVar("T")

#: Longest time in native code without running an instruction of Python.
_SLICE = 0.1

Callbacks = Mapping[str, Callable[[int], Any]]


class LeaseInterrupt(LeaseLostError):
    """Stops the work of a ``with`` block whose lease was lost. The block then raises the reason of the loss."""

    def __init__(self) -> None:
        super().__init__(
            "LEASE_LOST",
            "the lease of this block is not held any more",
            "Stop writing, then acquire again.",
            fields={"state": "suspended"},
        )


def run(
    operation: _native.Operation[T], *, callbacks: Optional[Callbacks] = None, timeout: Optional[float] = None
) -> T:
    """Waits for an operation, and executes its callbacks on this thread."""
    failed: Optional[BaseException] = None
    try:
        while True:
            _wait(operation, timeout)
            requested = operation.requested()
            if requested is None:
                break
            name, argument = requested
            try:
                operation.reply(True, (callbacks or {})[name](argument))
            except BaseException as error:
                failed = error
                operation.reply(False)
    except BaseException as error:
        if not isinstance(error, OutcomeUnknownError):
            operation.cancel()
        raise
    try:
        return operation.result()
    except CallbackFailed:
        if failed is None:
            raise
        raise failed from None
    except OutcomeUnknownError as error:
        raise _resolvable(error) from None


def _wait(operation: _native.Operation[Any], timeout: Optional[float]) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE if deadline is None else min(_SLICE, deadline - time.monotonic())
        if operation.wait(max(left, 0.0)):
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise _unfinished(operation)


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

        def converted(timeout: Optional[float]) -> Any:
            try:
                return convert(resolve(timeout))
            except OutcomeUnknownError as again:
                raise map_resolved(again, convert) from None

        error._resolve = converted
    return error


def close_within(operation: _native.Operation[None], timeout: float) -> None:
    """Waits for an operation for a limited time, and gives it up then."""
    if operation.wait(timeout):
        operation.result()
    else:
        operation.cancel()


class Lost:
    """Set as soon as the lease was lost or its local deadline passed, and for the rest of its life. Like ``threading.Event``."""

    def __init__(self, native: _native.NativeLease) -> None:
        self._native = native

    def is_set(self) -> bool:
        """Whether work had to stop."""
        return self._native.stopped()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until work must stop. Returns false after the timeout."""
        if not self.is_set():
            try:
                run(self._native.wait_stopped(), timeout=timeout)
            except OutcomeUnknownError:
                pass
        return self.is_set()


def wait_some(operation: _native.Operation[T], timeout: Optional[float]) -> Optional[T]:
    """The result of an operation, or none after the timeout; then it is canceled."""
    try:
        return run(operation, timeout=timeout)
    except OutcomeUnknownError:
        operation.cancel()
        return None


class _Watcher:
    """The thread that learns of lost leases: one per process, started with the first watch. It runs no code of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_key = 0
        self._queue: Optional[_native.CompletionQueue] = None

    def watch(self, native: _native.NativeLease, callback: Callable[[], None]) -> int:
        with self._lock:
            if self._queue is None:
                self._queue = _native.CompletionQueue()
                threading.Thread(target=self._deliver, args=(self._queue,), name="leasehold-watch", daemon=True).start()
            self._next_key += 1
            key = self._next_key
            self._callbacks[key] = callback
            native.watch(self._queue, key)
            return key

    def forget(self, key: int) -> None:
        # Without the lock: the garbage collector calls it, perhaps on a thread that holds the lock.
        self._callbacks.pop(key, None)

    def _deliver(self, queue: _native.CompletionQueue) -> None:
        while True:
            for key in queue.wait(3600.0):
                callback = self._callbacks.pop(key, None)
                if callback is not None:
                    try:
                        callback()
                    except BaseException:
                        _logger.exception("a lost lease was not reported")


_logger = logging.getLogger("leasehold")

_watcher = _Watcher()


def _after_fork() -> None:
    # The thread does not exist in the child, and its lock may be held.
    global _watcher
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_after_fork)


def watch_stop(native: _native.NativeLease, act: Callable[[], None]) -> Callable[[], None]:
    """Acts on the watching thread when work must stop, so it must not block. Returns a function that withdraws it."""
    watcher = _watcher
    key = watcher.watch(native, act)
    return lambda: watcher.forget(key)


def call_when_stopped(native: _native.NativeLease, callback: Callable[[], Any]) -> Callable[[], None]:
    """Runs a callback of the program on a thread of its own when work must stop. Returns a function that withdraws it."""

    def run_callback() -> None:
        try:
            callback()
        except BaseException:
            # Also SystemExit: Python would end this thread without a word.
            _logger.exception("the on_lost callback of a lease failed")

    def start() -> None:
        threading.Thread(target=run_callback, name="leasehold-on-lost", daemon=True).start()

    return watch_stop(native, start)


class Interruption:
    """Raises ``LeaseInterrupt`` in the thread of a block when its lease is lost."""

    def __init__(self, native: _native.NativeLease) -> None:
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._active = True
        self._sent = False
        self._withdraw = watch_stop(native, self._interrupt)

    def _interrupt(self) -> None:
        with self._lock:
            if self._active:
                self._sent = True
                _set_async_exception(self._thread, LeaseInterrupt)

    def end(self, raised: Optional[BaseException]) -> bool:
        """Ends the block. True if the exception is this interruption."""
        delivered = isinstance(raised, LeaseInterrupt)
        while True:
            try:
                self._withdraw()
                with self._lock:
                    self._active = False
                    if self._sent and not delivered:
                        # It has not been raised yet, and must not be raised after the block.
                        _set_async_exception(self._thread, None)
                return isinstance(raised, LeaseInterrupt)
            except LeaseInterrupt:
                delivered = True


def _set_async_exception(thread: int, exception: Optional[type[BaseException]]) -> None:
    value = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)


def scope() -> int:
    """Identifies the thread that enters and leaves a block."""
    return threading.get_ident()
