"""Fence for PostgreSQL with psycopg 3: claim once, then admit in the transaction of each write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg

from .held import HeldLease
from .sqlstate import error_of_exception

__all__ = ["aclaim", "atransaction", "claim", "refusals", "transaction"]

_CLAIM = "CALL leasehold.claim(%s, %s, slot => %s, terminate => %s)"
_ADMIT = "SELECT leasehold.admit(%s, %s, slot => %s, remaining => %s * interval '1 second')"


@contextmanager
def refusals() -> Iterator[None]:
    """Raises ``StaleTokenError`` and its relatives instead of the errors of psycopg."""
    try:
        yield
    except psycopg.Error as error:
        refusal = error_of_exception(error)
        if refusal is None:
            raise
        raise refusal from error


def _admission(lease: HeldLease) -> tuple[str, str, int, float]:
    return lease.token, lease.resource, lease.slot or 0, max(lease.remaining(), 0.001)


def claim(connection: psycopg.Connection[Any], lease: HeldLease, *, terminate: bool = False) -> None:
    """Raises the mark to the token of the lease, durably. A new holder claims before it reads anything.

    Waits for transactions of predecessors that were admitted; ``terminate`` ends them at the timeout. Not inside of a transaction.
    """
    autocommit = connection.autocommit
    connection.autocommit = True
    try:
        with refusals():
            connection.execute(_CLAIM, (lease.token, lease.resource, lease.slot or 0, terminate))
    finally:
        connection.autocommit = autocommit


@contextmanager
def transaction(connection: psycopg.Connection[Any], lease: HeldLease) -> Iterator[psycopg.Cursor[Any]]:
    """A transaction that PostgreSQL refuses if the token is stale, and ends when the lease does. Commits at the end."""
    with refusals(), connection.transaction(), connection.cursor() as cursor:
        cursor.execute(_ADMIT, _admission(lease))
        yield cursor


async def aclaim(connection: psycopg.AsyncConnection[Any], lease: HeldLease, *, terminate: bool = False) -> None:
    """Like ``claim``, for asyncio."""
    autocommit = connection.autocommit
    await connection.set_autocommit(True)
    try:
        with refusals():
            await connection.execute(_CLAIM, (lease.token, lease.resource, lease.slot or 0, terminate))
    finally:
        await connection.set_autocommit(autocommit)


@asynccontextmanager
async def atransaction(
    connection: psycopg.AsyncConnection[Any], lease: HeldLease
) -> AsyncIterator[psycopg.AsyncCursor[Any]]:
    """Like ``transaction``, for asyncio."""
    with refusals():
        async with connection.transaction(), connection.cursor() as cursor:
            await cursor.execute(_ADMIT, _admission(lease))
            yield cursor
