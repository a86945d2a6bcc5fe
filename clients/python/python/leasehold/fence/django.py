"""Fence for PostgreSQL with Django: an atomic block that presents the token.

For unmodified code, connections can present it: ``DATABASES["default"]["OPTIONS"] = database_options(lease)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, Error, connections, transaction

from .conninfo import options
from .held import HeldLease
from .sqlstate import error_of_exception

__all__ = ["claim", "database_options", "fenced"]


def database_options(*leases: HeldLease) -> dict[str, str]:
    """``OPTIONS`` of a database whose connections present the tokens to protected tables."""
    return {"options": options(leases)}


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except Error as error:
        refusal = error_of_exception(error)
        if refusal is None:
            raise
        raise refusal from error


def claim(lease: HeldLease, *, using: str = DEFAULT_DB_ALIAS, terminate: bool = False) -> None:
    """Raises the mark to the token of the lease, durably. A new holder claims before it reads anything.

    Not inside of ``atomic``: the claim must be durable when it returns.
    """
    with _refusals(), connections[using].cursor() as cursor:
        values = (lease.token, lease.resource, lease.slot or 0, terminate)
        cursor.execute("CALL leasehold.claim(%s, %s, slot => %s, terminate => %s)", values)


@contextmanager
def fenced(lease: HeldLease, *, using: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """An atomic block that PostgreSQL refuses if the token is stale, and ends when the lease does."""
    with _refusals(), transaction.atomic(using=using):
        with connections[using].cursor() as cursor:
            values = (lease.token, lease.resource, lease.slot or 0, max(lease.remaining(), 0.001))
            statement = "SELECT leasehold.admit(%s, %s, slot => %s, remaining => %s * interval '1 second')"
            cursor.execute(statement, values)
        yield
