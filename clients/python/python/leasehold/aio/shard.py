"""Sharding: N shards over M workers. Every shard has one owner at a time, and a new owner continues from the last checkpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Optional, Union

from .. import _native
from .._settings import OnLost
from ._wait import run
from .lease import Lease


class Shard(Lease):
    """A shard that this worker owns: a lease on ``prefix/index``, with a checkpoint."""

    def __init__(self, index: int, native: _native.NativeLease, shard: _native.NativeShard, on_lost: OnLost) -> None:
        super().__init__(native, on_lost)
        #: Index of the shard, from 0.
        self.index = index
        self._shard = shard

    async def resume(self) -> Optional[bytes]:
        """The newest checkpoint; none before the first. Waits until a draining predecessor is done."""
        row = await run(self._shard.resume())
        return None if row is None else row[0]

    async def checkpoint(self, value: Union[str, bytes]) -> int:
        """Writes a checkpoint: a former owner cannot overwrite it. Returns the revision."""
        return await run(self._shard.checkpoint(value.encode() if isinstance(value, str) else value))


class ShardWorker:
    """A worker of a set of shards. Iterating it waits for shards, and rebalances meanwhile. ``leave`` drains all of them."""

    def __init__(self, native: _native.NativeShardWorker, on_lost: OnLost) -> None:
        self._native = native
        self._on_lost = on_lost

    async def next_assignment(self) -> Shard:
        """Waits for the next shard of this worker. Call it in a loop: it also rebalances."""
        index, lease, shard = await run(self._native.next_assignment())
        return Shard(index, lease, shard, self._on_lost)

    async def leave(self) -> None:
        """Leaves the set. Every shard drains, and is free as soon as it is released."""
        await run(self._native.leave())

    async def __aiter__(self) -> AsyncIterator[Shard]:
        while True:
            yield await self.next_assignment()

    async def __aenter__(self) -> ShardWorker:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.leave()
