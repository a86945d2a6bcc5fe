"""Service discovery: registrations that end with their session, and a list of instances that stays current."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .. import _native
from ..records import Instance, InstanceChange
from ._wait import run


class Discovery:
    """The instances of a service. Iterating it waits for changes; the list changes only then. It never ends."""

    def __init__(self, native: _native.NativeDiscovery) -> None:
        self._native = native
        self._instances = {(row[0], row[3]): Instance(*row) for row in native.initial()}

    @property
    def instances(self) -> list[Instance]:
        """The instances in the order of their names."""
        return [self._instances[key] for key in sorted(self._instances)]

    async def next_change(self) -> InstanceChange:
        """Waits for the next change, and applies it to the list."""
        joined, row = await run(self._native.next())
        instance = Instance(*row)
        key = (instance.name, instance.number)
        if joined:
            self._instances[key] = instance
        else:
            self._instances.pop(key, None)
        return InstanceChange(joined, instance)

    async def __aiter__(self) -> AsyncIterator[InstanceChange]:
        while True:
            yield await self.next_change()
