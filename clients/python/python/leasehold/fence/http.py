"""Sends the token with HTTP requests, and reads the refusals of HTTP fences."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Optional, Union

from ..errors import LeaseholdError, error_of
from .held import HeldLease

__all__ = ["error_of_problem", "headers", "urlopen"]

#: Header that carries the token.
HEADER = "Lease-Token"


def headers(lease: HeldLease, *, sequence: Optional[int] = None) -> dict[str, str]:
    """Headers for any HTTP library: ``httpx.post(url, headers=headers(lease))``. Make them for each request.

    With a sequence, which rises within a hold, the fence applies the request once.
    """
    made = {HEADER: lease.token}
    if sequence is not None:
        made["Lease-Sequence"] = str(sequence)
    return made


def urlopen(
    lease: HeldLease, request: Union[str, urllib.request.Request], data: Optional[bytes] = None, timeout: float = 30
) -> Any:
    """Like ``urllib.request.urlopen``, with the token. A refusal by a fence raises its exception, for example ``StaleTokenError``."""
    if isinstance(request, str):
        request = urllib.request.Request(request, method="POST" if data is not None else "GET")
    for name, value in headers(lease).items():
        request.add_header(name, value)
    try:
        return urllib.request.urlopen(request, data, timeout)
    except urllib.error.HTTPError as error:
        refusal = error_of_problem(error.headers.get("Content-Type") or "", error.read())
        if refusal is None:
            raise
        raise refusal from error


def error_of_problem(content_type: str, body: bytes) -> Optional[LeaseholdError]:
    """The exception of a problem document of a fence or server; none for other bodies."""
    if not content_type.startswith("application/problem+json"):
        return None
    try:
        problem: Mapping[str, Any] = json.loads(body)
    except ValueError:
        return None
    if not isinstance(problem.get("code"), str):
        return None
    known = ("type", "title", "status", "detail", "code", "next_step")
    fields = {name: str(value) for name, value in problem.items() if name not in known}
    retryable = problem["code"] in ("UNAVAILABLE", "NOT_LEADER")
    detail, step = str(problem.get("detail", "")), str(problem.get("next_step", ""))
    return error_of(problem["code"], detail, step, retryable, fields, None)
