"""Fence for PostgreSQL with SQLAlchemy: every transaction of an engine presents the token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine import ExceptionContext

from .held import HeldLease
from .sqlstate import error_of_exception

__all__ = ["claim", "fence"]

_CLAIM = text("CALL leasehold.claim(:token, :resource, slot => :slot, terminate => :terminate)")
_ADMIT = text("SELECT leasehold.admit(:token, :resource, slot => :slot, remaining => :remaining * interval '1 second')")


def claim(engine: Engine, lease: HeldLease, *, terminate: bool = False) -> None:
    """Raises the mark to the token of the lease, durably. A new holder claims before it reads anything."""
    with _refusals(engine), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        values = {"token": lease.token, "resource": lease.resource, "slot": lease.slot or 0, "terminate": terminate}
        connection.execute(_CLAIM, values)


@contextmanager
def fence(engine: Engine, lease: HeldLease) -> Iterator[Engine]:
    """Inside of the block, each transaction of the engine and of its sessions is admitted under the lease, or refused.

    A refusal raises ``StaleTokenError`` instead of an error of SQLAlchemy.
    """

    def admit(connection: Connection) -> None:
        if connection.get_isolation_level() == "AUTOCOMMIT":
            return
        values = {"token": lease.token, "resource": lease.resource, "slot": lease.slot or 0}
        connection.execute(_ADMIT, {**values, "remaining": max(lease.remaining(), 0.001)})

    event.listen(engine, "begin", admit)
    try:
        with _refusals(engine):
            yield engine
    finally:
        event.remove(engine, "begin", admit)


@contextmanager
def _refusals(engine: Engine) -> Iterator[None]:
    def translate(context: ExceptionContext) -> None:
        refusal = error_of_exception(context.original_exception)
        if refusal is not None:
            raise refusal from context.original_exception

    event.listen(engine, "handle_error", translate)
    try:
        yield
    finally:
        event.remove(engine, "handle_error", translate)
