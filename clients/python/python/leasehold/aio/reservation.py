"""Reservations: units that are reserved for a time, then confirmed permanently or canceled."""

from __future__ import annotations

from typing import Optional

from .. import _native
from ..durations import Duration, milliseconds
from ..records import ReservationStatus
from ._wait import run


class Reservation:
    """Reserved units. It belongs to any process that has its token, and ends by its ttl alone: deleting this cancels nothing."""

    def __init__(self, native: _native.NativeReservation) -> None:
        self._native = native

    @property
    def resource(self) -> str:
        """Name of the resource."""
        return self._native.resource

    @property
    def token(self) -> str:
        """Identifies the reservation in other processes. Store it like a secret."""
        return self._native.token

    @property
    def secret(self) -> Optional[str]:
        """What confirms and cancels at a server with access rules, together with the identity."""
        return self._native.secret

    async def confirm(self) -> None:
        """Confirms it: its units stay in use until an operator changes the capacity."""
        await run(self._native.confirm())

    async def cancel(self) -> None:
        """Cancels it and frees its units."""
        await run(self._native.cancel())

    async def resize(self, units: int) -> None:
        """Changes the number of units. If more units are not available, it stays as it was."""
        await run(self._native.resize(units))

    async def extend(self) -> float:
        """Extends it to its full ttl, counted from now. Returns the remaining seconds."""
        return await run(self._native.extend())

    async def veto(self, outlast: Duration) -> float:
        """Lets it outlast its ttl by this time, as far as the charter allows. Returns the remaining seconds."""
        return await run(self._native.veto(milliseconds("outlast", outlast)))

    async def status(self) -> ReservationStatus:
        """Its state at a moment during this call."""
        return ReservationStatus(*await run(self._native.status()))
