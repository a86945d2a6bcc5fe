"""The client: connections to the servers, and one session for all its leases."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Optional, ParamSpec, TypeVar, Union

from .. import _native
from .._settings import NativeClients, OnLost, PathText, client_factory, lock_settings
from ..durations import Duration, milliseconds, optional_milliseconds
from ..errors import LeaseholdError, invalid_argument
from ..records import StoredValue
from ._wait import close_within, run
from .cache import Cache
from .discovery import Discovery
from .leader import Election
from .lease import Lease
from .lock import Lock, LockAll
from .pin import Pin
from .queue import Queue
from .reservation import Reservation
from .shard import ShardWorker

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """A client of one cluster. Nothing is dialed before it is needed.

    Servers are ``host:port``, ``https://host:port`` or ``unix:/path``, as one text with commas or as a sequence. Without arguments, the
    environment decides, as on the command line: ``LEASEHOLD_ADDR``, ``LEASEHOLD_TLS_CA``, ``LEASEHOLD_TLS_CERT``, ``LEASEHOLD_TLS_KEY``,
    ``LEASEHOLD_BEARER_FILE``. A forked child gets a session of its own; leases of its parent are lost in it.
    """

    def __init__(
        self,
        servers: Union[str, Sequence[str], None] = None,
        *,
        holder: Optional[str] = None,
        session_ttl: Optional[Duration] = None,
        tls_ca: Optional[PathText] = None,
        tls_cert: Optional[PathText] = None,
        tls_key: Optional[PathText] = None,
        bearer_file: Optional[PathText] = None,
        connect_timeout: Optional[Duration] = None,
        request_timeout: Optional[Duration] = None,
    ) -> None:
        self._set_native(
            client_factory(
                servers,
                holder=holder,
                session_ttl=session_ttl,
                tls_ca=tls_ca,
                tls_cert=tls_cert,
                tls_key=tls_key,
                bearer_file=bearer_file,
                connect_timeout=connect_timeout,
                request_timeout=request_timeout,
            )
        )

    def _set_native(self, make: Callable[[], _native.NativeClient]) -> None:
        self._clients = NativeClients(make)

    def lock(
        self,
        resource: str,
        *,
        wait: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        renew_every: Optional[Duration] = None,
        timeout: Optional[Duration] = None,
        on_lost: OnLost = "raise",
        shared: bool = False,
        slots: Optional[int] = None,
        units: Optional[int] = None,
        priority: Optional[int] = None,
        max_hold: Optional[Duration] = None,
        require_progress: Optional[Duration] = None,
        holder: Optional[str] = None,
        metadata: Union[str, bytes, None] = None,
    ) -> Lock:
        """A lease on a resource: exclusive, or ``shared``, one of ``slots``, or ``units`` of a capacity.

        ``wait`` waits while others hold it. ``timeout`` limits the whole call; then the outcome is unknown and can be resolved. When the lease
        is lost: ``on_lost="raise"`` stops the block with ``LeaseLostError``, ``"exit"`` ends the process without the interpreter,
        ``"ignore"`` only sets ``lease.lost``, and a callable is called with the lease.
        """
        settings = lock_settings(
            [resource],
            wait=wait,
            ttl=ttl,
            renew_every=renew_every,
            timeout=timeout,
            on_lost=on_lost,
            shared=shared,
            slots=slots,
            units=units,
            priority=priority,
            max_hold=max_hold,
            require_progress=require_progress,
            holder=holder,
            metadata=metadata,
        )
        return Lock(self._clients, settings)

    def lock_all(
        self,
        resources: Sequence[str],
        *,
        wait: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        timeout: Optional[Duration] = None,
        on_lost: OnLost = "raise",
        shared: bool = False,
        priority: Optional[int] = None,
        holder: Optional[str] = None,
    ) -> LockAll:
        """Leases on several resources, acquired in one step: all or none."""
        settings = lock_settings(
            resources,
            wait=wait,
            ttl=ttl,
            timeout=timeout,
            on_lost=on_lost,
            shared=shared,
            priority=priority,
            holder=holder,
        )
        return LockAll(self._clients, settings)

    def locked(
        self,
        resource: str,
        *,
        wait: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        on_lost: OnLost = "raise",
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
        """A decorator: each call of the function holds the lease. ``current_lease()`` returns it inside of the function."""
        lock = self.lock(resource, wait=wait, ttl=ttl, on_lost=on_lost)

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
            @functools.wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> T:
                async with lock:
                    return await function(*args, **kwargs)
                raise AssertionError("a block either returns or raises")

            return call

        return decorate

    def election(
        self,
        resource: str,
        *,
        ttl: Optional[Duration] = None,
        priority: Optional[int] = None,
        metadata: Optional[str] = None,
        on_lost: OnLost = "raise",
    ) -> Election:
        """An election: the holder of the resource leads. Observers see the metadata, for example an address."""
        native = self._clients.get().election(resource, optional_milliseconds("ttl", ttl), priority, metadata)
        return Election(native, on_lost)

    def queue(self, name: str, *, visibility: Optional[Duration] = None) -> Queue:
        """A message queue. A received message is invisible to others for ``visibility`` (30 s), unless extended."""
        return Queue(self._clients.get().queue(name, optional_milliseconds("visibility", visibility)))

    async def register(
        self,
        service: str,
        instance: str,
        *,
        details: Optional[str] = None,
        ttl: Optional[Duration] = None,
        wait: Optional[Duration] = None,
        on_lost: OnLost = "ignore",
    ) -> Lease:
        """Registers an instance of a service. Releasing the lease, or the end of the session, ends the registration."""
        ttl_ms, wait_ms = optional_milliseconds("ttl", ttl), optional_milliseconds("wait", wait)
        return Lease(await run(self._clients.get().register(service, instance, details, ttl_ms, wait_ms)), on_lost)

    async def discover(self, service: str) -> Discovery:
        """The instances of a service now, and their changes."""
        return Discovery(await run(self._clients.get().discover(service)))

    async def join_shards(
        self,
        prefix: str,
        count: int,
        *,
        ttl: Optional[Duration] = None,
        poll_interval: Optional[Duration] = None,
        on_lost: OnLost = "raise",
    ) -> ShardWorker:
        """Registers this client as a worker of a set of shards. Shard 7 of ``orders`` is the resource ``orders/7``."""
        ttl_ms, poll_ms = optional_milliseconds("ttl", ttl), optional_milliseconds("poll_interval", poll_interval)
        return ShardWorker(await run(self._clients.get().join_shards(prefix, count, ttl_ms, poll_ms)), on_lost)

    async def reserve(
        self,
        resource: str,
        units: int,
        *,
        ttl: Optional[Duration] = None,
        wait: Optional[Duration] = None,
        holder: Optional[str] = None,
        metadata: Union[str, bytes, None] = None,
    ) -> Reservation:
        """Reserves units of a resource for ``ttl`` (60 s)."""
        data = metadata.encode() if isinstance(metadata, str) else metadata
        ttl_ms, wait_ms = optional_milliseconds("ttl", ttl), optional_milliseconds("wait", wait)
        return Reservation(await run(self._clients.get().reserve(resource, units, ttl_ms, wait_ms, holder, data)))

    def reservation(self, resource: str, token: str, *, secret: Optional[str] = None) -> Reservation:
        """A reservation that was made elsewhere."""
        return Reservation(self._clients.get().reservation(resource, token, secret))

    async def pin(
        self,
        resource: str,
        position: int,
        *,
        ttl: Optional[Duration] = None,
        max_hold: Optional[Duration] = None,
        on_lost: OnLost = "raise",
    ) -> Pin:
        """Pins a position. Read only after this. A position that may have been collected is refused with ``CONFLICT``."""
        ttl_ms, max_ms = optional_milliseconds("ttl", ttl), optional_milliseconds("max_hold", max_hold)
        return Pin(
            self._clients, await run(self._clients.get().pin(resource, position, ttl_ms, max_ms)), position, on_lost
        )

    async def collect(self, resource: str, below: int) -> int:
        """The position below which the caller may delete: ``below``, unless a live pin is lower."""
        return await run(self._clients.get().collect(resource, below))

    def cache(
        self,
        *,
        ttl: Optional[Duration] = None,
        timeout: Optional[Duration] = None,
        capacity: Optional[int] = None,
    ) -> Cache[Any]:
        """A cache of values that is consistent with writes."""
        if capacity is not None and capacity < 1:
            raise invalid_argument("capacity", "at least 1 entry")
        ttl_ms, timeout_ms = optional_milliseconds("ttl", ttl), optional_milliseconds("timeout", timeout)
        return Cache(self._clients.get().cache(ttl_ms, timeout_ms, capacity))

    @property
    def session(self) -> Optional[str]:
        """Id of the session; none before the first lease."""
        return self._clients.get().session()

    async def state(self, resource: str) -> dict[str, StoredValue]:
        """The small state of a resource by key, which ``lease.put`` wrote."""
        rows = await run(self._clients.get().state_of(resource))
        return {row[0]: StoredValue(*row) for row in rows}

    async def show(self, resource: str) -> dict[str, Any]:
        """The state of a resource, with the field names of the HTTP API."""
        shown: dict[str, Any] = json.loads(await run(self._clients.get().show(resource)))
        return shown

    async def resources(self, prefix: str = "") -> list[dict[str, Any]]:
        """The resources below a prefix, with the field names of the HTTP API."""
        listed: list[dict[str, Any]] = json.loads(await run(self._clients.get().resources(prefix)))
        return listed

    async def status(self) -> dict[str, Any]:
        """Status and counters of the server."""
        status: dict[str, Any] = json.loads(await run(self._clients.get().status()))
        return status

    async def cluster_id(self) -> str:
        """The cluster id, as tokens contain it. Fences need it when they are armed."""
        return await run(self._clients.get().cluster_id())

    async def close(self, timeout: Duration = 5) -> None:
        """Closes the session, which releases all leases, within a limited time. A new lock opens a new session."""
        try:
            await close_within(self._clients.get().close(), milliseconds("timeout", timeout) / 1000)
        except LeaseholdError:
            # The leases expire by their ttl.
            pass

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()
