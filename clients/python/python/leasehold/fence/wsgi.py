"""WSGI middleware: requests with a stale token are refused before they reach the application."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Union

from ..errors import LeaseholdError
from .gate import CLAIM_PATH, SAFE_METHODS, Gate, problem

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["FenceMiddleware"]


class FenceMiddleware:
    """Wraps an application. Methods that can change something need the header ``Lease-Token``; reads pass.

    ``POST /-/claim`` claims. A request is in flight until its response is complete.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        marks: Union[str, os.PathLike[str]],
        resource: str,
        cluster: str,
        slot: int = 0,
        arm: bool = False,
    ) -> None:
        self._app = app
        self._gate = Gate(marks, resource=resource, cluster=cluster, slot=slot)
        if arm:
            self._gate.arm()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in SAFE_METHODS:
            return self._app(environ, start_response)
        stack = ExitStack()
        try:
            stack.enter_context(self._gate.admitted(environ.get("HTTP_LEASE_TOKEN")))
        except LeaseholdError as error:
            status, body = problem(error)
            headers = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(body)))]
            start_response(f"{status} Refused", headers)
            return [body]
        if environ.get("PATH_INFO") == CLAIM_PATH:
            stack.close()
            start_response("204 No Content", [])
            return []
        try:
            return _InFlight(self._app(environ, start_response), stack.close)
        except BaseException:
            stack.close()
            raise


class _InFlight:
    """A response whose request is in flight until it is complete."""

    def __init__(self, response: Iterable[bytes], finish: Callable[[], None]) -> None:
        self._response = response
        self._finish = finish

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._response)

    def close(self) -> None:
        try:
            close = getattr(self._response, "close", None)
            if close is not None:
                close()
        finally:
            self._finish()
