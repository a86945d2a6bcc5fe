"""Consistent caches: copies are read without a request, and a write waits until every copy is dropped or has expired."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Optional, TypeVar

from .. import _native
from ..durations import Duration, milliseconds
from ._wait import run

V = TypeVar("V")


class Cache(Generic[V]):
    """A cache of values from elsewhere. Every write of a cached value must go through ``write`` of this or another cache."""

    def __init__(self, native: _native.NativeCache) -> None:
        self._native = native

    def peek(self, key: str) -> Optional[V]:
        """The cached value, if it may be used now."""
        found = self._native.peek(key)
        return None if found is None else found[0]

    async def get(self, key: str, load: Callable[[], Awaitable[V]]) -> V:
        """The cached value; otherwise loads and caches it. The cache never makes a read fail."""

        async def loaded(_: int) -> V:
            return await load()

        value: V = await run(self._native.get(key), callbacks={"load": loaded})
        return value

    async def get_or_fill(
        self, key: str, find: Callable[[int], Awaitable[Optional[V]]], fill: Callable[[int], Awaitable[V]]
    ) -> V:
        """The cached value; otherwise the shared copy that ``find`` looks up; otherwise what ``fill`` makes and stores.

        Both receive the version of the copy. One caller fills at a time.
        """
        value: V = await run(self._native.get_or_fill(key), callbacks={"find": find, "fill": fill})
        return value

    async def write(self, key: str, work: Callable[[int], Awaitable[object]], *, wait: Duration = 10) -> int:
        """Runs the work when no reader has a valid copy, and returns the new version.

        The work receives the number of the write intent; the target must reject a late writer by it. Waits for another writer.
        """
        return await run(self._native.write(key, milliseconds("wait", wait)), callbacks={"work": work})

    def remove(self, key: str) -> None:
        """Removes an entry of this process."""
        self._native.remove(key)
