"""Values that queries and recipes return. They are the same in ``leasehold`` and ``leasehold.aio``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class StoredValue:
    """Small state that was written under a lease."""

    key: str
    value: bytes
    #: Token number of the lease under which it was written.
    token_number: int
    #: Increases with every write to the resource.
    revision: int


@dataclass(frozen=True)
class Leader:
    """The current leader of an election."""

    holder: str
    #: A later leader has a higher one.
    token_number: int
    metadata: str


@dataclass(frozen=True)
class Instance:
    """A registered instance of a service."""

    name: str
    holder: str
    details: str
    #: Of two instances with the same name, the later one has the higher number.
    number: int


@dataclass(frozen=True)
class InstanceChange:
    """An instance joined, or left."""

    joined: bool
    instance: Instance


@dataclass(frozen=True)
class QueueStats:
    """Number of messages in a queue by state."""

    ready: int
    delayed: int
    in_flight: int
    dead: int


@dataclass(frozen=True)
class DeadLetter:
    """A message that is out of attempts."""

    id: int
    body: bytes
    attempts: int
    #: How its last delivery ended.
    reason: Optional[str]


@dataclass(frozen=True)
class ReservationStatus:
    """State of a reservation: ``open``, ``settled`` (confirmed or canceled) or ``ended``."""

    state: str
    #: Seconds that an open reservation has left.
    remaining: Optional[float]
    #: Why it ended.
    reason: Optional[str]


@dataclass(frozen=True)
class VerifiedCredential:
    """A valid credential. The fence of the target decides about its token."""

    subject: str
    token: str
    token_number: int
    #: Seconds since 1970.
    expires: int
