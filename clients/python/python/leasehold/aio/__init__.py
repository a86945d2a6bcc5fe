"""Leases with fencing tokens, for asyncio. The names are those of ``leasehold``; calls that wait are coroutines.

    from leasehold.aio import Client

    client = Client("127.0.0.1:7421", holder="worker-1")
    async with client.lock("jobs/settle", wait=60) as lease:
        await write(token=lease.token)
"""

from .cache import Cache
from .client import Client
from .discovery import Discovery
from .leader import Election
from .lease import Lease, current_lease
from .lock import Lock, LockAll
from .pin import Pin
from .queue import Message, Queue
from .reservation import Reservation
from .shard import Shard, ShardWorker

__all__ = [
    "Cache",
    "Client",
    "Discovery",
    "Election",
    "Lease",
    "Lock",
    "LockAll",
    "Message",
    "Pin",
    "Queue",
    "Reservation",
    "Shard",
    "ShardWorker",
    "current_lease",
]
