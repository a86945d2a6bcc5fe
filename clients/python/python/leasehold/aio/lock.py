"""Locks: what to acquire, as a context manager that can be used again."""

from __future__ import annotations

from types import TracebackType
from typing import Optional

from .. import _native
from .._settings import LockSettings, NativeClients
from ..errors import BusyError, OutcomeUnknownError
from ._wait import map_resolved, run, scope
from .lease import Lease


class Lock:
    """A lease to acquire. Nothing is sent before ``acquire`` or ``async with``. It can be used again, also by several tasks."""

    def __init__(self, clients: NativeClients, settings: LockSettings) -> None:
        self._clients = clients
        self._settings = settings
        self._entered: dict[int, list[Lease]] = {}

    def _lease(self, granted: list[_native.NativeLease]) -> Lease:
        return Lease(granted[0], self._settings.on_lost)

    async def acquire(self) -> Lease:
        """Acquires the lease, now or after waiting. Canceling withdraws the wait."""
        operation = self._clients.get().acquire(self._settings)
        try:
            return self._lease(await run(operation, timeout=self._settings.timeout))
        except OutcomeUnknownError as error:
            raise map_resolved(error, self._lease) from None

    async def try_acquire(self) -> Optional[Lease]:
        """Acquires the lease; none if others hold it."""
        try:
            return await self.acquire()
        except BusyError:
            return None

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        self._entered.setdefault(scope(), []).append(lease)
        return await lease.__aenter__()

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        leases = self._entered[scope()]
        lease = leases.pop()
        if not leases:
            del self._entered[scope()]
        await lease.__aexit__(kind, raised, trace)


class LockAll:
    """Several leases, acquired in one step: all or none."""

    def __init__(self, clients: NativeClients, settings: LockSettings) -> None:
        self._clients = clients
        self._settings = settings
        self._entered: dict[int, list[list[Lease]]] = {}

    def _leases(self, granted: list[_native.NativeLease]) -> list[Lease]:
        return [Lease(native, self._settings.on_lost) for native in granted]

    async def acquire(self) -> list[Lease]:
        """Acquires all leases, in the order of their resources, or none."""
        operation = self._clients.get().acquire(self._settings)
        try:
            return self._leases(await run(operation, timeout=self._settings.timeout))
        except OutcomeUnknownError as error:
            raise map_resolved(error, self._leases) from None

    async def __aenter__(self) -> list[Lease]:
        leases = await self.acquire()
        self._entered.setdefault(scope(), []).append(leases)
        for lease in leases:
            await lease.__aenter__()
        return leases

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        entered = self._entered[scope()]
        leases = entered.pop()
        if not entered:
            del self._entered[scope()]
        # The first loss is raised, and the other leases are released all the same.
        failure: Optional[BaseException] = None
        for lease in reversed(leases):
            try:
                await lease.__aexit__(kind, raised, trace)
            except BaseException as error:
                failure = failure or error
        try:
            if failure is not None:
                raise failure from None
        finally:
            # The error refers to this frame: without the cycle, what it refers to is deleted with it.
            del failure
