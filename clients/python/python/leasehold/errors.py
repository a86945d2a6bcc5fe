"""Exceptions: one closed hierarchy, with the stable code of the server and the next step.

Decide by class or by ``code``, never by the text. Unknown codes of a newer server are ``ServerFailureError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional

from . import _native

__all__ = [
    "AccessDeniedError",
    "BusyError",
    "CanceledError",
    "ConflictError",
    "DeadlockError",
    "InvalidArgumentError",
    "LeaseLostError",
    "LeaseholdError",
    "LimitExceededError",
    "NotFoundError",
    "OutcomeUnknownError",
    "ServerFailureError",
    "StaleTokenError",
    "UnavailableError",
    "WaitTimeoutError",
]


class LeaseholdError(Exception):
    """A refusal by the server, or a failure to reach it. Its text is one line: ``CODE{fields}: message; next step``."""

    #: Stable code, for example ``BUSY``.
    code: str
    #: What happened.
    message: str
    #: What to do now.
    next_step: str
    #: Whether nothing happened, and the same request can be sent again later.
    is_retryable: bool
    #: Values of the code, for example ``holder`` of ``BUSY``.
    fields: Mapping[str, str]

    def __init__(
        self,
        code: str,
        message: str,
        next_step: str = "",
        *,
        is_retryable: bool = False,
        fields: Optional[Mapping[str, str]] = None,
        text: Optional[str] = None,
    ) -> None:
        steps = next_step.rstrip(".")
        default = f"{code}: {message}; {steps[:1].lower()}{steps[1:]}" if steps else f"{code}: {message}"
        super().__init__(text if text is not None else default)
        self.code = code
        self.message = message
        self.next_step = next_step
        self.is_retryable = is_retryable
        self.fields = dict(fields or {})

    def __reduce__(self) -> tuple[Callable[..., LeaseholdError], tuple[Any, ...]]:
        # Exceptions cross processes, for example in multiprocessing and Celery.
        return _error_of, (self.code, self.message, self.next_step, self.is_retryable, dict(self.fields), str(self))


class InvalidArgumentError(LeaseholdError, ValueError):
    """A value is invalid; ``fields`` names it. Change it and retry."""


class AccessDeniedError(LeaseholdError):
    """The caller is not authenticated, or lacks the permission."""


class NotFoundError(LeaseholdError):
    """The subject does not exist, or the caller may not see it."""


class ConflictError(LeaseholdError):
    """The request contradicts the current state. Read it before you retry."""


class BusyError(LeaseholdError):
    """Another holder has the lease."""

    @property
    def holder(self) -> Optional[str]:
        """Name of the holder, if the server says it."""
        return self.fields.get("holder")


class WaitTimeoutError(LeaseholdError, TimeoutError):
    """The lease was not granted within the wait time."""


class DeadlockError(LeaseholdError):
    """The wait would complete a deadlock. Release what you hold, then retry."""


class CanceledError(LeaseholdError):
    """The wait was canceled."""


class LeaseLostError(LeaseholdError):
    """The lease is not held any more. Stop writing."""

    @property
    def state(self) -> Optional[str]:
        """``suspended``, ``expired``, ``released`` or ``revoked``; none if the server no longer knows."""
        return self.fields.get("state")

    @property
    def reason(self) -> Optional[str]:
        """Why it ended, for example ``ttl``, ``operator`` or ``fork``."""
        return self.fields.get("reason")

    @property
    def may_acquire_again(self) -> bool:
        """Whether the program may acquire again by itself: never after a revocation."""
        return self.state in ("suspended", "expired")


class StaleTokenError(LeaseholdError):
    """A target has seen a newer token: the lease of this one has ended. Stop writing."""

    @property
    def presented(self) -> Optional[str]:
        """Number of the token that was presented."""
        return self.fields.get("presented")

    @property
    def mark(self) -> Optional[str]:
        """Highest number that the target has seen (its high-water mark)."""
        return self.fields.get("mark")


class UnavailableError(LeaseholdError, ConnectionError):
    """No server decided. Retry later."""


class LimitExceededError(LeaseholdError):
    """A limit is exceeded; ``fields`` names it. Request less, or release something."""


class ServerFailureError(LeaseholdError):
    """The server or a target reports damage, or a code that this version does not know."""


class OutcomeUnknownError(LeaseholdError):
    """No reply arrived in time: the request may have been executed.

    ``resolve()`` waits for the outcome of the same request. Dropping this error gives up: a lease that was granted after all is released.
    """

    _resolve: Optional[Callable[[Optional[float]], Any]] = None

    def resolve(self, timeout: Optional[float] = None) -> Any:
        """Waits for the outcome again. In ``leasehold.aio``, await it. Returns what the request returns."""
        if self._resolve is None:
            raise RuntimeError("this outcome cannot be resolved here; read the current state")
        return self._resolve(timeout)


class CallbackFailed(Exception):
    """A callback of the program failed inside of an operation. Its own exception is raised instead of this one."""


_CLASSES: dict[str, type[LeaseholdError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "METHOD_NOT_ALLOWED": InvalidArgumentError,
    "TOKEN_INVALID": InvalidArgumentError,
    "TOKEN_IMPLAUSIBLE": InvalidArgumentError,
    "WRONG_CLUSTER": InvalidArgumentError,
    "UNSUPPORTED_VERSION": InvalidArgumentError,
    "CONFIG": InvalidArgumentError,
    "UNAUTHENTICATED": AccessDeniedError,
    "PERMISSION_DENIED": AccessDeniedError,
    "APPROVAL_REQUIRED": AccessDeniedError,
    "NOT_FOUND": NotFoundError,
    "CONFLICT": ConflictError,
    "ACCESS_CHANGE": ConflictError,
    "REQUEST_TOO_OLD": ConflictError,
    "BUSY": BusyError,
    "HELD_FOR_OPERATOR": BusyError,
    "TIMEOUT": WaitTimeoutError,
    "DEADLOCK": DeadlockError,
    "CANCELLED": CanceledError,
    "LEASE_LOST": LeaseLostError,
    "NOT_CURRENT": LeaseLostError,
    "STALE_TOKEN": StaleTokenError,
    "NOT_ADOPTED": StaleTokenError,
    "INDETERMINATE": OutcomeUnknownError,
    "UNAVAILABLE": UnavailableError,
    "NOT_LEADER": UnavailableError,
    "ROLLED_BACK": UnavailableError,
    "QUARANTINED": UnavailableError,
    "STORAGE_FULL": UnavailableError,
    "STORAGE_FAILED": UnavailableError,
    "RESOURCE_EXHAUSTED": LimitExceededError,
    "TOKEN_EXHAUSTED": LimitExceededError,
}


def _error_of(
    code: str, message: str, next_step: str, is_retryable: bool, fields: Mapping[str, str], text: Optional[str]
) -> LeaseholdError:
    kind = _CLASSES.get(code, ServerFailureError)
    return kind(code, message, next_step, is_retryable=is_retryable, fields=fields, text=text)


def invalid_argument(field: str, reason: str) -> InvalidArgumentError:
    """An argument with an invalid value."""
    fields = {"field": field, "reason": reason}
    return InvalidArgumentError("INVALID_ARGUMENT", f"{field}: {reason}", "Change the field and retry.", fields=fields)


# The functions below are called by the native module.

error_of = _error_of


def unknown_outcome(request_id: str, pending: _native.PendingRequest) -> OutcomeUnknownError:
    error = OutcomeUnknownError(
        "INDETERMINATE",
        "no reply arrived in time; the request may have been executed",
        "Resolve the outcome, or read the current state.",
        fields={"request_id": request_id},
    )
    error._resolve = lambda timeout: pending.resolve()
    return error


def canceled() -> CanceledError:
    return CanceledError("CANCELLED", "the operation was canceled", "Acquire again if you still need the lease.")


def suspended(resource: str) -> LeaseLostError:
    return LeaseLostError(
        "LEASE_LOST",
        f"the lease on {resource} was not renewed in time, and another holder may have it",
        "Stop writing, then acquire again.",
        fields={"state": "suspended", "reason": "deadline"},
    )


def forked() -> LeaseLostError:
    return LeaseLostError(
        "LEASE_LOST",
        "this process was forked; leases belong to the parent process",
        "Acquire again in the child.",
        fields={"reason": "fork"},
    )
