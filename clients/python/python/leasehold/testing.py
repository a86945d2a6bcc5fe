"""Test kit: the real server in memory, a clock that the test moves, and faults. It uses no network and no sleeps.

The pytest plugin of this package provides the fixture ``leasehold_server``.
"""

from __future__ import annotations

from typing import Optional, Union

from . import _native, aio
from .client import Client
from .durations import Duration, milliseconds, optional_milliseconds

AnyClient = Union[Client, aio.Client]


class TestServer:
    """A server in memory. Time does not pass unless ``advance`` moves it."""

    __test__ = False  # not a test class of pytest

    def __init__(self) -> None:
        self._native = _native.NativeTestServer()

    def client(self, holder: str, *, session_ttl: Optional[Duration] = None) -> Client:
        """A client, as in a process of its own. It supports leases, recipes and queries of resources."""
        client = Client.__new__(Client)
        ttl_ms = optional_milliseconds("session_ttl", session_ttl)
        client._set_native(lambda: self._native.client(holder, ttl_ms))
        return client

    def aio_client(self, holder: str, *, session_ttl: Optional[Duration] = None) -> aio.Client:
        """Like ``client``, for asyncio."""
        client = aio.Client.__new__(aio.Client)
        ttl_ms = optional_milliseconds("session_ttl", session_ttl)
        client._set_native(lambda: self._native.client(holder, ttl_ms))
        return client

    def advance(self, by: Duration) -> None:
        """Lets time pass. Every holder that is not paused acts meanwhile, and is idle at the end."""
        self._native.advance(milliseconds("by", by))

    def settle(self) -> None:
        """Waits until every holder is idle at the current time."""
        self._native.settle()

    def pause(self, client: AnyClient) -> None:
        """Pauses a holder, like a stopped process."""
        self._native.pause(client._clients.get())

    def resume(self, client: AnyClient) -> None:
        """Continues a paused holder. It finds out how late it is."""
        self._native.resume(client._clients.get())

    def partition(self, client: AnyClient) -> None:
        """Cuts a holder off from the server."""
        self._native.partition(client._clients.get())

    def heal(self, client: AnyClient) -> None:
        """Ends a partition."""
        self._native.heal(client._clients.get())

    def drop_replies(self, client: AnyClient) -> None:
        """Drops replies to a holder until its stream breaks: its requests are executed, and it does not learn the outcome."""
        self._native.drop_replies(client._clients.get())

    def expire(self, resource: str) -> None:
        """Advances only the server's clock until everything that is held on the resource has ended."""
        self._native.expire(resource)

    def revoke(self, resource: str, *, grace: Duration = 0) -> None:
        """Revokes everything that is held on a resource, as an operator does."""
        self._native.revoke(resource, milliseconds("grace", grace))

    def set_capacity(self, resource: str, units: int) -> None:
        """Sets the capacity of a resource."""
        self._native.set_capacity(resource, units)

    def holders(self, resource: str) -> dict[str, int]:
        """Holders of a resource with their token numbers."""
        return dict(self._native.holders(resource))

    @property
    def cluster_id(self) -> str:
        """The cluster id, as in tokens."""
        return self._native.cluster_id()
