"""The fence of PostgreSQL reports by SQLSTATE. This module makes exceptions of this package from them."""

from __future__ import annotations

import re
from typing import Optional

from ..errors import LeaseholdError, error_of

#: Codes by SQLSTATE, as docs/how-to/fence/postgres.md lists them.
CODES = {
    "LH001": "STALE_TOKEN",
    "LH002": "TOKEN_INVALID",
    "LH003": "TOKEN_IMPLAUSIBLE",
    "LH004": "WRONG_CLUSTER",
    "LH005": "STORAGE_FAILED",
    "LH006": "UNAVAILABLE",
    "LH007": "CONFIG",
    "LH008": "UNSUPPORTED_VERSION",
    "LH009": "CONFLICT",
    "LH010": "NOT_ADOPTED",
}

_NEXT_STEPS = {
    "STALE_TOKEN": "Stop writing. The lease of this token has ended.",
    "TOKEN_INVALID": "Present the token of a lease on this resource.",
    "STORAGE_FAILED": "Re-arm the fence with a number that no holder was granted yet.",
    "UNAVAILABLE": "Claim again later, or let the claim end what blocks it.",
}

_FIELDS = re.compile(r"(\w+)=(\S+)")


def error_of_sqlstate(
    sqlstate: Optional[str], message: str, detail: Optional[str] = None
) -> Optional[LeaseholdError]:
    """The exception of a refusal by the fence; none for every other error."""
    code = CODES.get(sqlstate or "")
    if code is None:
        return None
    fields = dict(_FIELDS.findall(detail or ""))
    return error_of(code, message, _NEXT_STEPS.get(code, ""), code == "UNAVAILABLE", fields, None)


def error_of_exception(error: BaseException) -> Optional[LeaseholdError]:
    """The exception of a refusal that a driver raised, also inside of another exception."""
    current: Optional[BaseException] = error
    while current is not None:
        sqlstate = getattr(current, "sqlstate", None) or getattr(current, "pgcode", None)
        diagnosis = getattr(current, "diag", None)
        message = getattr(diagnosis, "message_primary", None) or str(current)
        found = error_of_sqlstate(sqlstate, message, getattr(diagnosis, "message_detail", None))
        if found is not None:
            return found
        current = current.__cause__ or getattr(current, "orig", None)
    return None
