"""What a fence needs of a lease."""

from __future__ import annotations

from typing import Optional, Protocol


class HeldLease(Protocol):
    """A lease of ``leasehold`` or ``leasehold.aio``."""

    @property
    def resource(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def slot(self) -> Optional[int]: ...

    def remaining(self) -> float: ...
