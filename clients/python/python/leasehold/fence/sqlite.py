"""Fence for SQLite with the standard library: the check is a statement in the transaction of the write.

``leasehold fence arm sqlite:PATH`` installs it; ``leasehold fence protect`` makes a table refuse every write without it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import error_of
from .held import HeldLease

__all__ = ["claim", "transaction"]

_REFUSAL = re.compile(r"([A-Z_]{4,})(?:\{[^}]*\})?(?::? ?(.*))", re.DOTALL)
_FIELDS = re.compile(r"(\w+)=(\w+)")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        found = _REFUSAL.fullmatch(text)
        if found is None or "_" not in found.group(1) and found.group(1) not in ("CONFLICT", "CONFIG"):
            raise
        message, _, step = found.group(2).partition("; ")
        raise error_of(found.group(1), message or text, step, False, dict(_FIELDS.findall(text)), None) from error


@contextmanager
def _immediate(database: sqlite3.Connection) -> Iterator[None]:
    """A write transaction, whatever the connection's own transaction control is."""
    control, database.isolation_level = database.isolation_level, None
    try:
        # Outside of a transaction, or it has no effect.
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
    finally:
        database.isolation_level = control


def claim(database: sqlite3.Connection, lease: HeldLease) -> None:
    """Raises the mark to the token of the lease, durably. A new holder claims before it reads anything."""
    with _refusals(), _immediate(database):
        database.execute("INSERT INTO leasehold_claim VALUES (?, ?)", (lease.resource, lease.token))


@contextmanager
def transaction(database: sqlite3.Connection, lease: HeldLease) -> Iterator[sqlite3.Connection]:
    """A transaction that SQLite refuses if the token is stale. Commits at the end. Do not use savepoints in it."""
    with _refusals(), _immediate(database):
        database.execute("PRAGMA defer_foreign_keys = ON")
        database.execute("INSERT INTO leasehold_admit VALUES (?, ?)", (lease.resource, lease.token))
        yield database
        database.execute("DELETE FROM leasehold_admission")
