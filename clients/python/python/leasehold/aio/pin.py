"""Pins: readers pin a position, and a garbage collector deletes only below the lowest live pin."""

from __future__ import annotations

from .. import _native
from .._settings import NativeClients, OnLost
from ._wait import run
from .lease import Lease


class Pin(Lease):
    """A pinned position: nothing at or above it is collected while the pin is held. Releasing it unpins."""

    def __init__(self, clients: NativeClients, native: _native.NativeLease, position: int, on_lost: OnLost) -> None:
        super().__init__(native, on_lost)
        self._clients = clients
        #: The pinned position.
        self.position = position

    async def move_to(self, position: int) -> None:
        """Moves the pin. A move backward may be refused with ``CONFLICT``; then the pin stays where it is."""
        self.position = await run(self._clients.get().move_pin(self._native, position))
