"""A held lease: its token, its state, and calls under it."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Optional, TypeVar, Union

from .. import _native
from .._settings import OnLost, held_leases
from ..durations import Duration, optional_milliseconds, seconds
from ..errors import LeaseholdError
from ..fence.conninfo import conninfo
from ._wait import Interruption, Lost, call_when_stopped, run, wait_some

#: A lease, or a kind of it.
Held = TypeVar("Held", bound="Lease")

_current: contextvars.ContextVar[Optional[Lease]] = contextvars.ContextVar("leasehold.current_lease", default=None)


def current_lease() -> Lease:
    """The lease of the innermost block around the caller, for example in a function under ``@client.locked``."""
    lease = _current.get()
    if lease is None:
        raise LookupError("no lease is held here; call this inside of a block or function with a lock")
    return lease


class Lease:
    """A held lease. A thread of the Rust client renews it; nothing in the program can block that thread.

    Leaving the ``async with`` block releases it. So does deleting the last reference, without waiting.
    """

    def __init__(self, native: _native.NativeLease, on_lost: OnLost = "raise") -> None:
        self._native = native
        self._on_lost = on_lost
        self._interruption: Optional[Interruption] = None
        self._outer: Optional[contextvars.Token[Optional[Lease]]] = None
        #: The lease itself, from the release of a lost lease until ``on_lost`` was called with it.
        self._kept: list[Lease] = []
        self._resource = native.resource
        held_leases.add(self)
        #: Set as soon as the lease was lost or its local deadline passed.
        self.lost = Lost(native)
        self._withdraw: Optional[Callable[[], None]] = None
        if on_lost == "exit":
            native.exit_when_stopped()
        elif callable(on_lost):
            self._call_when_stopped(on_lost)

    def _call_when_stopped(self, on_lost: Callable[[Any], Any]) -> None:
        # The watch keeps neither the lease nor, after the release, itself: deleting the last reference releases the lease.
        this, kept = weakref.ref(self), self._kept

        def call() -> Any:
            lease = this()
            kept.clear()
            return None if lease is None else on_lost(lease)

        self._withdraw = call_when_stopped(self._native, call)
        weakref.finalize(self, self._withdraw).atexit = False

    @property
    def resource(self) -> str:
        """Name of the resource."""
        return self._resource

    @property
    def id(self) -> str:
        """Id of the lease."""
        return self._native.lease_id

    @property
    def token(self) -> str:
        """The fencing token: present this text with every write. Read it for every write, because a charter may raise it."""
        return self._native.token

    @property
    def token_number(self) -> int:
        """Number of the token: a later grant has a higher one."""
        return self._native.token_number

    @property
    def slot(self) -> Optional[int]:
        """Number of the slot; none for a shared lease and for units."""
        return self._native.slot

    def stamped_token(self, target: str) -> Optional[str]:
        """The token with the stamp for a sealed target; none if the server has no stamp key for it."""
        return self._native.stamped_token(target)

    @property
    def state(self) -> str:
        """State now, by the local clock: ``held``, ``suspended`` or ``lost``."""
        return self._native.state()[0]

    @property
    def loss(self) -> Optional[LeaseholdError]:
        """Why work must stop; none while it may continue."""
        loss = self._native.loss()
        return loss if isinstance(loss, LeaseholdError) else None

    def raise_if_lost(self) -> None:
        """Raises ``LeaseLostError`` if work had to stop. Long work without other checks calls this."""
        if self.lost.is_set():
            loss = self.loss
            if loss is not None:
                raise loss

    def remaining(self) -> float:
        """Seconds that work may continue without another renewal, by a clock that includes suspend."""
        return self._native.remaining()

    def draining(self) -> Optional[float]:
        """Seconds until this holder must be finished; none if no handoff or preemption has started."""
        return self._native.draining()

    def progress(self, at: int) -> None:
        """Reports progress, which must increase. Does not wait: the next renewal carries it."""
        self._native.progress(at)

    async def wait_draining(self, timeout: Optional[Duration] = None) -> bool:
        """Waits until a handoff or preemption starts. False if the lease is lost before, or after the timeout."""
        return bool(await wait_some(self._native.wait_draining(), seconds("timeout", timeout)))

    async def wait_claimable(self, timeout: Optional[Duration] = None) -> None:
        """Waits until the targets may be claimed: at once, unless the predecessor of an overlap still drains.

        Then claim, read again, and write, in this order.
        """
        await run(self._native.wait_claimable(), timeout=seconds("timeout", timeout))

    async def finish_drain(self) -> None:
        """Ends a handoff: this holder is finished, and its successor starts. The lease is released."""
        await self.release()

    async def handoff(
        self,
        *,
        to: Optional[str] = None,
        mode: Optional[Literal["gap", "overlap"]] = None,
        drain: Optional[Duration] = None,
    ) -> None:
        """Starts a planned handoff. The lease continues while it drains: finish, then release."""
        await run(self._native.handoff(to, mode, optional_milliseconds("drain", drain)))

    async def check(self) -> None:
        """Asks the server whether the lease is current. An optimization: the fence of the target decides."""
        await run(self._native.check())

    async def rotate(self) -> str:
        """Raises the token and returns the new one. Once a target has seen it, it rejects the old one."""
        return await run(self._native.rotate())

    async def put(self, key: str, value: Union[str, bytes, None], *, expected_revision: Optional[int] = None) -> int:
        """Stores small state, only if the lease is current. None deletes the key. Returns the revision."""
        data = value.encode() if isinstance(value, str) else value
        return await run(self._native.put(key, data, expected_revision))

    async def wait_lost(self, timeout: Optional[Duration] = None) -> bool:
        """Waits until the server has ended the lease. False after the timeout."""
        await wait_some(self._native.wait_lost(), seconds("timeout", timeout))
        return self.state == "lost"

    async def release(self) -> None:
        """Releases the lease and waits for the confirmation. Calling it again does nothing."""
        if self._withdraw is not None:
            if self.lost.is_set():
                self._kept.append(self)
            else:
                self._withdraw()
            self._withdraw = None
        await run(self._native.release())

    def conninfo(self, url: str) -> str:
        """A PostgreSQL URL or connection string whose connections present the token to protected tables."""
        return conninfo(url, [self])

    async def __aenter__(self: Held) -> Held:
        if self._on_lost == "raise":
            self._interruption = Interruption(self._native)
        self._outer = _current.set(self)
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        interrupted = self._interruption is not None and self._interruption.end(raised)
        self._interruption = None
        if self._outer is not None:
            _current.reset(self._outer)
            self._outer = None
        loss = self.loss if self._on_lost == "raise" and self.lost.is_set() else None
        try:
            await self.release()
        except LeaseholdError:
            # The work is finished whatever the release replies; at the latest, the lease expires by its ttl.
            pass
        if loss is not None and (raised is None or interrupted):
            raise loss from None

    def __repr__(self) -> str:
        # Without the token, which must not reach a log.
        return f"<Lease {self._resource} {self.state}>"
