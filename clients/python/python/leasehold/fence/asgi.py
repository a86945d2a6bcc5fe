"""ASGI middleware: requests with a stale token are refused before they reach the application."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from typing import Any, Union

from ..errors import LeaseholdError
from .gate import CLAIM_PATH, SAFE_METHODS, Gate, problem

__all__ = ["FenceMiddleware"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class FenceMiddleware:
    """Wraps an application. Methods that can change something need the header ``Lease-Token``; reads pass.

    ``POST /-/claim`` claims. A request is in flight until the application returns. Only HTTP is fenced: WebSockets are refused.
    """

    def __init__(
        self,
        app: Application,
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        token = next((value for name, value in scope["headers"] if name.lower() == b"lease-token"), b"")
        stack = ExitStack()
        try:
            # Admission may wait for requests in flight; it must not block the event loop.
            admitted = self._gate.admitted(token.decode("latin-1"))
            await asyncio.to_thread(stack.enter_context, admitted)
        except LeaseholdError as error:
            status, body = problem(error)
            await _reply(send, status, body)
            return
        with stack:
            if scope["path"] == CLAIM_PATH:
                await _reply(send, 204, b"")
            else:
                await self._app(scope, receive, send)


async def _reply(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode())] if status != 204 else []
    if body:
        headers.append((b"content-type", b"application/problem+json"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
