"""Settings of clients and locks, validated once and shared by ``leasehold`` and ``leasehold.aio``."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Optional, Union

from . import _native
from .durations import Duration, milliseconds, optional_milliseconds
from .errors import invalid_argument

#: What happens when the lease is lost or its local deadline passes.
OnLost = Union[Literal["raise", "exit", "ignore"], Callable[[Any], Any]]

PathText = Union[str, "os.PathLike[str]"]

_DEFAULT_SERVER = "127.0.0.1:7421"


@dataclass(frozen=True)
class LockSettings:
    """What to acquire. The native module reads these fields."""

    resources: list[str]
    holder: Optional[str]
    ttl_ms: Optional[int]
    renew_every_ms: Optional[int]
    wait_ms: int
    shared: bool
    slots: Optional[int]
    units: Optional[int]
    priority: Optional[int]
    max_hold_ms: Optional[int]
    progress_ms: Optional[int]
    metadata: Optional[bytes]
    timeout: Optional[float]
    on_lost: OnLost


def lock_settings(
    resources: Sequence[str],
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
) -> LockSettings:
    """Validates what the native module does not."""
    if not (callable(on_lost) or on_lost in ("raise", "exit", "ignore")):
        raise invalid_argument("on_lost", f"{on_lost!r}; pass 'raise', 'exit', 'ignore' or a callable")
    if not resources or not all(isinstance(name, str) for name in resources):
        raise invalid_argument("resource", "pass at least one name as text")
    if sum((shared, slots is not None, units is not None)) > 1:
        raise invalid_argument("shared", "pass only one of shared, slots and units")
    for field, number, limit in (("slots", slots, 2**32), ("units", units, 2**32), ("priority", priority, 256)):
        if number is not None and not 0 <= number < limit:
            raise invalid_argument(field, f"{number}; from 0 to {limit - 1}")
    timeout_ms = optional_milliseconds("timeout", timeout)
    return LockSettings(
        resources=list(resources),
        holder=holder,
        ttl_ms=optional_milliseconds("ttl", ttl),
        renew_every_ms=optional_milliseconds("renew_every", renew_every),
        wait_ms=0 if wait is None else milliseconds("wait", wait),
        shared=shared,
        slots=slots,
        units=units,
        priority=priority,
        max_hold_ms=optional_milliseconds("max_hold", max_hold),
        progress_ms=optional_milliseconds("require_progress", require_progress),
        metadata=metadata.encode() if isinstance(metadata, str) else metadata,
        timeout=None if timeout_ms is None else timeout_ms / 1000,
        on_lost=on_lost,
    )


class NativeClients:
    """The native client of the current process. A forked child gets its own, with the same settings."""

    def __init__(self, make: Callable[[], _native.NativeClient]) -> None:
        self._make = make
        self._pid = os.getpid()
        self._client = make()
        _open.add(self)

    def get(self) -> _native.NativeClient:
        if self._pid != os.getpid():
            self._client, self._pid = self._make(), os.getpid()
        return self._client


#: Clients of this process, which are closed when the interpreter exits.
_open: weakref.WeakSet[NativeClients] = weakref.WeakSet()

#: Longest time that closing all clients delays the exit. Leases that are not released then expire by their ttl.
_EXIT_TIMEOUT = 2.0


#: Leases of this process. A lease outlives its client if nothing refers to the client any more.
held_leases: weakref.WeakSet[Any] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    deadline = time.monotonic() + _EXIT_TIMEOUT
    for lease in list(held_leases):
        # `on_lost="exit"` would replace the exit code.
        lease._native.mark_released()
    _finish([clients._client.close() for clients in list(_open) if clients._pid == os.getpid()], deadline)
    natives = [lease._native for lease in list(held_leases)]
    _finish([native.release() for native in natives if native.state()[0] != "lost"], deadline)


def _finish(operations: list[_native.Operation[None]], deadline: float) -> None:
    for operation in operations:
        operation.wait(max(deadline - time.monotonic(), 0.0))


def client_factory(
    servers: Union[str, Sequence[str], None],
    *,
    holder: Optional[str],
    session_ttl: Optional[Duration],
    tls_ca: Optional[PathText],
    tls_cert: Optional[PathText],
    tls_key: Optional[PathText],
    bearer_file: Optional[PathText],
    connect_timeout: Optional[Duration],
    request_timeout: Optional[Duration],
) -> Callable[[], _native.NativeClient]:
    """A function that makes the native client. Arguments override the environment, as on the command line."""
    if servers is None:
        servers = os.environ.get("LEASEHOLD_ADDR") or _DEFAULT_SERVER
    addresses = ",".join([servers] if isinstance(servers, str) else servers)
    addresses = ",".join(one.strip().removeprefix("http://") for one in addresses.split(","))
    ca, cert, key = (
        given or os.environ.get(f"LEASEHOLD_TLS_{name}") or None
        for given, name in ((tls_ca, "CA"), (tls_cert, "CERT"), (tls_key, "KEY"))
    )
    bearer = bearer_file or os.environ.get("LEASEHOLD_BEARER_FILE") or None
    tls: Optional[tuple[PathText, Optional[tuple[PathText, PathText]]]] = None
    if ca is not None and cert is not None and key is not None:
        tls = (ca, (cert, key))
    elif ca is not None and cert is None and key is None and bearer is not None:
        tls = (ca, None)
    elif (ca, cert, key) != (None, None, None):
        missing = "tls_ca" if ca is None else "tls_cert" if cert is None else "tls_key"
        raise invalid_argument(missing, "is missing; set tls_ca, tls_cert and tls_key together, or tls_ca and bearer_file")
    session_ttl_ms = optional_milliseconds("session_ttl", session_ttl)
    connect_ms = optional_milliseconds("connect_timeout", connect_timeout)
    request_ms = optional_milliseconds("request_timeout", request_timeout)
    return lambda: _native.NativeClient(addresses, holder, session_ttl_ms, tls, bearer, connect_ms, request_ms)
