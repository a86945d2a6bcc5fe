"""Leader election: one candidate leads, the others wait, and everyone can observe the leader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Optional

from .. import _native
from .._settings import OnLost
from ..records import Leader
from ._wait import run
from .lease import Lease


class Election:
    """An election on a resource. ``async with`` leads: it waits for the leadership, and resigns at the end of the block."""

    def __init__(self, native: _native.NativeElection, on_lost: OnLost) -> None:
        self._native = native
        self._on_lost = on_lost
        self._leading: Optional[Lease] = None

    async def campaign(self) -> Lease:
        """Waits until this client leads, without a time limit. Canceling withdraws the candidacy. ``release`` resigns."""
        return Lease(await run(self._native.campaign()), self._on_lost)

    async def leader(self) -> Optional[Leader]:
        """The leader at a moment during this call; none if there is no leader."""
        row = await run(self._native.leader())
        return None if row is None else Leader(*row)

    async def observe(self) -> AsyncIterator[Optional[Leader]]:
        """The current leader, then every change; none while there is no leader. It never ends."""
        updates = await run(self._native.observe())
        while True:
            row = await run(updates.next())
            yield None if row is None else Leader(*row)

    async def __aenter__(self) -> Lease:
        self._leading = await self.campaign()
        return await self._leading.__aenter__()

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        lease, self._leading = self._leading, None
        if lease is not None:
            await lease.__aexit__(kind, raised, trace)
