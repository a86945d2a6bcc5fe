"""Leases with fencing tokens, for blocking code. ``leasehold.aio`` has the same names for asyncio.

    from leasehold import Client

    client = Client("127.0.0.1:7421", holder="worker-1")
    with client.lock("jobs/settle", wait=60) as lease:
        write(token=lease.token)

A thread of the Rust client renews all leases. It never takes the interpreter lock, so that nothing in the program can stop it.
"""

from .cache import Cache
from .client import Client
from .credential import CredentialIssuer, CredentialVerifier
from .discovery import Discovery
from .errors import (
    AccessDeniedError,
    BusyError,
    CanceledError,
    ConflictError,
    DeadlockError,
    InvalidArgumentError,
    LeaseholdError,
    LeaseLostError,
    LimitExceededError,
    NotFoundError,
    OutcomeUnknownError,
    ServerFailureError,
    StaleTokenError,
    UnavailableError,
    WaitTimeoutError,
)
from .leader import Election
from .lease import Lease, current_lease
from .lock import Lock, LockAll
from .pin import Pin
from .queue import Message, Queue
from .records import (
    DeadLetter,
    Instance,
    InstanceChange,
    Leader,
    QueueStats,
    ReservationStatus,
    StoredValue,
    VerifiedCredential,
)
from .reservation import Reservation
from .shard import Shard, ShardWorker

__version__ = "0.1.0"

__all__ = [
    "AccessDeniedError",
    "BusyError",
    "Cache",
    "CanceledError",
    "Client",
    "ConflictError",
    "CredentialIssuer",
    "CredentialVerifier",
    "DeadLetter",
    "DeadlockError",
    "Discovery",
    "Election",
    "Instance",
    "InstanceChange",
    "InvalidArgumentError",
    "Leader",
    "Lease",
    "LeaseLostError",
    "LeaseholdError",
    "LimitExceededError",
    "Lock",
    "LockAll",
    "Message",
    "NotFoundError",
    "OutcomeUnknownError",
    "Pin",
    "Queue",
    "QueueStats",
    "Reservation",
    "ReservationStatus",
    "ServerFailureError",
    "Shard",
    "ShardWorker",
    "StaleTokenError",
    "StoredValue",
    "UnavailableError",
    "VerifiedCredential",
    "WaitTimeoutError",
    "current_lease",
]
