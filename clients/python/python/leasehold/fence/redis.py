"""Fence for Redis with redis-py: commands go through a server function that checks the token in the same step.

``leasehold fence arm redis://…`` installs the functions and arms the mark.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional, Union

import redis
import redis.asyncio
from redis.exceptions import ResponseError

from ..errors import error_of, invalid_argument
from .held import HeldLease

__all__ = ["aclaim", "awrite", "claim", "mark_key", "write"]

Argument = Union[str, bytes, int, float]

_FIELDS = re.compile(r"(\w+)=(\S+)")


def mark_key(lease: HeldLease, hash_tag: Optional[str] = None) -> str:
    """Key of the mark. In a cluster, the keys of a write need the same hash tag: the resource's name, unless given."""
    return f"leasehold:{{{hash_tag or lease.resource}}}:{lease.token[30:46]}:{lease.token[48:56]}"


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ResponseError as error:
        text = str(error)
        code, _, rest = text.partition(" ")
        if not re.fullmatch(r"[A-Z_]{4,}", code) or "(" not in rest:
            raise
        explanation = rest[rest.index("(") + 1 :].rstrip(")")
        message, _, step = explanation.partition("; ")
        raise error_of(code, message, step, False, dict(_FIELDS.findall(rest)), None) from error


def _claim_arguments(lease: HeldLease, hash_tag: Optional[str]) -> tuple[str, int, str, str]:
    return "leasehold_claim", 1, mark_key(lease, hash_tag), lease.token


def _write_arguments(
    lease: HeldLease, keys: Sequence[str], command: Sequence[Argument], sequence: Optional[int], hash_tag: Optional[str]
) -> tuple[Any, ...]:
    if not command:
        raise invalid_argument("command", "is empty; pass a command and its arguments, for example 'SET', key, value")
    number = "" if sequence is None else f"{sequence:020d}"
    return ("leasehold_write", 1 + len(keys), mark_key(lease, hash_tag), *keys, lease.token, number, *command)


def claim(database: redis.Redis, lease: HeldLease, *, hash_tag: Optional[str] = None) -> None:
    """Raises the mark to the token of the lease. A new holder claims before it reads anything."""
    with _refusals():
        database.fcall(*_claim_arguments(lease, hash_tag))


def write(
    database: redis.Redis,
    lease: HeldLease,
    keys: Sequence[str],
    *command: Argument,
    sequence: Optional[int] = None,
    hash_tag: Optional[str] = None,
) -> Any:
    """Executes one command if the token is current, in one step: ``write(db, lease, [key], "SET", key, value)``.

    With a sequence, which rises, it is applied once.
    """
    with _refusals():
        return database.fcall(*_write_arguments(lease, keys, command, sequence, hash_tag))


async def aclaim(database: redis.asyncio.Redis, lease: HeldLease, *, hash_tag: Optional[str] = None) -> None:
    """Like ``claim``, for asyncio."""
    with _refusals():
        await _awaited(database.fcall(*_claim_arguments(lease, hash_tag)))


async def awrite(
    database: redis.asyncio.Redis,
    lease: HeldLease,
    keys: Sequence[str],
    *command: Argument,
    sequence: Optional[int] = None,
    hash_tag: Optional[str] = None,
) -> Any:
    """Like ``write``, for asyncio."""
    with _refusals():
        return await _awaited(database.fcall(*_write_arguments(lease, keys, command, sequence, hash_tag)))


async def _awaited(reply: Union[Awaitable[Any], Any]) -> Any:
    return await reply if isinstance(reply, Awaitable) else reply
