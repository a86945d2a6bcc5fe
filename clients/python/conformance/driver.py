"""Driver of the conformance suite for the Python client: JSON requests on stdin, JSON replies on stdout.

Requests run concurrently, each as a task of asyncio. See clients/conformance/README.md for the protocol.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Optional

# A simulated suspend: the native clock adds the milliseconds in this file. The runner sets it; the module reads the variable once.
_VARIABLE = "LEASEHOLD_TESTING_FAKE_SUSPEND_FILE"
_SUSPEND = Path(os.environ.get(_VARIABLE) or Path(tempfile.mkdtemp(prefix="leasehold-driver-")) / "suspend")
os.environ[_VARIABLE] = str(_SUSPEND)

import leasehold  # noqa: E402
from leasehold import _native, aio  # noqa: E402
from leasehold.fence import http  # noqa: E402

Json = dict[str, Any]


class Driver:
    """Clients, leases and running requests by the names that the runner gives them."""

    def __init__(self) -> None:
        self.clients: dict[str, aio.Client] = {}
        self.leases: dict[str, aio.Lease] = {}
        self.messages: dict[str, aio.Message] = {}
        self.running: dict[int, asyncio.Task[None]] = {}
        self.unresolved: dict[int, tuple[Json, leasehold.OutcomeUnknownError]] = {}
        #: Requests that `resolve` continues, by the id of the `resolve`.
        self.origin: dict[int, int] = {}
        self.finish: dict[str, asyncio.Event] = {}
        self.many: dict[str, list[aio.Lease]] = {}
        self.broken: set[str] = set()
        self.suspended_ms = 0
        self.write_lock = threading.Lock()

    def reply(self, message: Json) -> None:
        with self.write_lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def fail(
        self, number: int, code: str, message: str, step: str, retryable: bool = False, fields: Optional[Json] = None
    ) -> None:
        error = {"code": code, "message": message, "next_step": step, "retryable": retryable}
        self.reply({"id": number, "error": {**(fields or {}), **error}})

    async def handle(self, request: Json) -> None:
        number = request["id"]
        try:
            operation: Optional[Callable[[Json], Awaitable[Optional[Json]]]] = getattr(self, "op_" + request["op"], None)
            if operation is None:
                self.fail(number, "UNSUPPORTED_OP", f"no op {request['op']}", "Extend the driver.")
                return
            self.reply({"id": number, "ok": await operation(request) or {}})
        except asyncio.CancelledError:
            self.fail(number, "CANCELLED", "the request was canceled", "Send it again if you still need it.")
        except leasehold.LeaseholdError as error:
            if isinstance(error, leasehold.OutcomeUnknownError):
                self.unresolved[self.origin.pop(number, number)] = (request, error)
            self.fail(number, error.code, error.message, error.next_step, error.is_retryable, dict(error.fields))
        except Exception as error:
            self.fail(number, "DRIVER", f"{type(error).__name__}: {error}", "Fix the driver.")
        finally:
            self.running.pop(number, None)

    # Clients.

    async def op_hello(self, request: Json) -> Json:
        return {"client": "python", "version": leasehold.__version__, "skips": {}}

    async def op_break(self, request: Json) -> None:
        name = request["property"]
        self.broken.add(name)
        if name != "no_token" and not _native.break_property(name):
            raise ValueError(f"unknown property {name}")
        if name == "renewal_on_main_loop":
            # The event loop lets the worker continue, as if it renewed by itself.
            asyncio.get_running_loop().call_soon(self.tick)

    def tick(self) -> None:
        _native.tick_renewals(100)
        asyncio.get_running_loop().call_later(0.02, self.tick)

    async def op_connect(self, request: Json) -> None:
        tls, timeout = request.get("tls") or {}, request.get("request_timeout_ms")
        self.clients[request["client"]] = aio.Client(
            request["servers"],
            holder=request.get("holder"),
            session_ttl=f"{request.get('session_ttl_ms', 30_000)}ms",
            tls_ca=tls.get("ca"),
            tls_cert=tls.get("cert"),
            tls_key=tls.get("key"),
            bearer_file=request.get("bearer_file"),
            request_timeout=None if timeout is None else f"{timeout}ms",
        )

    async def op_close(self, request: Json) -> None:
        await self.clients[request["client"]].close()

    async def op_session(self, request: Json) -> Json:
        return {"session": self.clients[request["client"]].session}

    async def op_exit(self, request: Json) -> None:
        self.reply({"id": request["id"], "ok": {}})
        os._exit(0)

    # Leases.

    def settings(self, request: Json) -> Json:
        settings: Json = {"on_lost": "ignore"}
        for name, field in (
            ("wait", "wait_ms"),
            ("ttl", "ttl_ms"),
            ("timeout", "timeout_ms"),
            ("max_hold", "max_hold_ms"),
            ("require_progress", "progress_ms"),
        ):
            if request.get(field) is not None:
                settings[name] = f"{request[field]}ms"
        for name in ("shared", "slots", "units", "priority", "holder", "metadata"):
            if request.get(name) is not None:
                settings[name] = request[name]
        return settings

    def granted(self, name: str, lease: aio.Lease) -> Json:
        self.leases[name] = lease
        return {"token": lease.token, "token_number": str(lease.token_number), "slot": lease.slot}

    async def op_acquire(self, request: Json) -> Json:
        lock = self.clients[request["client"]].lock(request["resource"], **self.settings(request))
        return self.granted(request["lease"], await lock.acquire())

    async def op_acquire_all(self, request: Json) -> Json:
        resources = [one["resource"] if isinstance(one, dict) else one for one in request["resources"]]
        settings = self.settings(request)
        lock = self.clients[request["client"]].lock_all(resources, **settings)
        leases = await lock.acquire()
        names = request.get("leases") or resources
        return {"grants": [self.granted(name, lease) for name, lease in zip(names, leases)]}

    async def op_hold_many(self, request: Json) -> Json:
        client, prefix = self.clients[request["client"]], request["prefix"]
        held = self.many.setdefault(request["client"], [])
        for start in range(0, request["count"], 500):
            part = range(start, min(start + 500, request["count"]))
            locks = [client.lock(f"{prefix}/{index}", on_lost="ignore").acquire() for index in part]
            held.extend(await asyncio.gather(*locks))
        return {"held": request["count"]}

    async def op_held_count(self, request: Json) -> Json:
        return {"held": sum(lease.state == "held" for lease in self.many.get(request["client"], []))}

    async def op_resolve(self, request: Json) -> Json:
        original, error = self.unresolved.pop(request["request"])
        self.origin[request["id"]] = request["request"]
        request.update({name: one for name, one in original.items() if name != "id"})
        timeout = request.get("timeout_ms")
        resolved = await error.resolve(None if timeout is None else timeout / 1000)
        if isinstance(resolved, list):
            names = original.get("leases") or [one.resource for one in resolved]
            return {"grants": [self.granted(name, lease) for name, lease in zip(names, resolved)]}
        if isinstance(resolved, aio.Lease):
            return self.granted(original["lease"], resolved)
        return {"value": resolved}

    async def op_cancel(self, request: Json) -> Json:
        task = self.running.get(request["request"])
        return {"canceled": task is not None and task.cancel()}

    async def op_release(self, request: Json) -> None:
        await self.leases[request["lease"]].release()

    async def op_token(self, request: Json) -> Json:
        lease = self.leases[request["lease"]]
        return {"token": lease.token, "token_number": str(lease.token_number), "slot": lease.slot}

    def state(self, lease: aio.Lease) -> Json:
        state, loss = lease.state, lease.loss
        if state != "lost" or not isinstance(loss, leasehold.LeaseLostError):
            return {"state": state}
        return {"state": state, "lost_state": loss.state or "not_current", "reason": loss.reason}

    async def op_state(self, request: Json) -> Json:
        return self.state(self.leases[request["lease"]])

    async def op_remaining(self, request: Json) -> Json:
        return {"ms": round(self.leases[request["lease"]].remaining() * 1000)}

    async def op_wait_state(self, request: Json) -> Json:
        lease, wanted = self.leases[request["lease"]], request["state"]
        deadline = time.monotonic() + request.get("timeout_ms", 30_000) / 1000
        states = ("suspended", "lost") if wanted == "stopped" else (wanted,)
        while self.state(lease)["state"] not in states:
            if time.monotonic() >= deadline:
                found = self.state(lease)["state"]
                message = f"the lease is {found}, not {wanted}"
                raise leasehold.WaitTimeoutError("TIMEOUT", message, "Compare the scenario with the client.")
            await asyncio.sleep(0.01)
        return self.state(lease)

    async def op_work(self, request: Json) -> Json:
        name, started = request["lease"], time.monotonic()
        lease = self.leases[name]
        finish = self.finish.setdefault(name, asyncio.Event())
        stopped = asyncio.ensure_future(lease.lost.wait())
        finished = asyncio.ensure_future(finish.wait())
        try:
            await asyncio.wait({stopped, finished}, return_when=asyncio.FIRST_COMPLETED)
            is_stopped = stopped.done()
        finally:
            for task in (stopped, finished):
                task.cancel()
            self.finish.pop(name, None)
        return {"stopped": is_stopped, "after_ms": round((time.monotonic() - started) * 1000)}

    async def op_finish(self, request: Json) -> None:
        self.finish.setdefault(request["lease"], asyncio.Event()).set()

    async def op_progress(self, request: Json) -> None:
        self.leases[request["lease"]].progress(int(request["progress"]))

    async def op_handoff(self, request: Json) -> None:
        drain = request.get("drain_ms")
        await self.leases[request["lease"]].handoff(
            to=request.get("to"), mode=request.get("mode"), drain=None if drain is None else f"{drain}ms"
        )

    async def op_wait_draining(self, request: Json) -> Json:
        lease = self.leases[request["lease"]]
        draining = await lease.wait_draining(f"{request.get('timeout_ms', 30_000)}ms")
        if not draining and lease.loss is not None:
            raise lease.loss
        if not draining:
            raise leasehold.WaitTimeoutError("TIMEOUT", "the lease does not drain", "Compare the scenario with the client.")
        return {"drain_ms": round((lease.draining() or 0) * 1000)}

    async def op_finish_drain(self, request: Json) -> None:
        await self.leases[request["lease"]].finish_drain()

    async def op_wait_claimable(self, request: Json) -> Json:
        timeout, started = request.get("timeout_ms"), time.monotonic()
        try:
            await self.leases[request["lease"]].wait_claimable(None if timeout is None else f"{timeout}ms")
        except leasehold.OutcomeUnknownError:
            message = "the predecessor still drains"
            raise leasehold.WaitTimeoutError("TIMEOUT", message, "Wait longer.") from None
        return {"after_ms": round((time.monotonic() - started) * 1000)}

    # Small state and queues.

    async def op_put(self, request: Json) -> Json:
        expected = request.get("expected_revision")
        lease = self.leases[request["lease"]]
        revision = await lease.put(
            request["key"], request.get("value"), expected_revision=None if expected is None else int(expected)
        )
        return {"revision": str(revision)}

    async def op_get(self, request: Json) -> Json:
        values = await self.clients[request["client"]].state(request["resource"])
        found = values.get(request["key"])
        if found is None:
            return {"value": None}
        return {"value": found.value.decode(), "revision": str(found.revision), "token_number": str(found.token_number)}

    async def op_queue_send(self, request: Json) -> Json:
        delay = request.get("delay_ms")
        item = await self.clients[request["client"]].queue(request["queue"]).send(
            request["body"],
            delay=None if delay is None else f"{delay}ms",
            max_attempts=request.get("max_attempts"),
        )
        return {"item": str(item)}

    async def op_queue_receive(self, request: Json) -> Json:
        visibility, wait = request.get("visibility_ms"), request.get("wait_ms")
        queue = self.clients[request["client"]].queue(
            request["queue"], visibility=None if visibility is None else f"{visibility}ms"
        )
        if wait:
            one = await queue.recv(f"{wait}ms")
            messages = [] if one is None else [one]
        else:
            messages = await queue.receive(request.get("limit") or 1)
        rows = []
        for message in messages:
            self.messages[str(message.receipt)] = message
            row = {"item": str(message.id), "receipt": str(message.receipt), "attempt": message.attempt}
            rows.append({**row, "body": message.body.decode(), "token": message.token})
        return {"deliveries": rows}

    async def op_queue_ack(self, request: Json) -> None:
        await self.messages.pop(request["receipt"]).ack()

    async def op_queue_nack(self, request: Json) -> Json:
        message = self.messages.pop(request["receipt"])
        return {"dead": await message.nack(f"{request.get('delay_ms') or 0}ms")}

    async def op_queue_extend(self, request: Json) -> None:
        await self.messages[request["receipt"]].extend(f"{request['visibility_ms']}ms")

    # Faults and fences.

    async def op_block(self, request: Json) -> None:
        # `PyDLL` keeps the interpreter lock during the call: no thread of Python runs meanwhile.
        ctypes.PyDLL(None).usleep(ctypes.c_uint(request["ms"] * 1000))

    async def op_advance_clock(self, request: Json) -> None:
        self.suspended_ms += request["ms"]
        temporary = _SUSPEND.with_suffix(".new")
        temporary.write_text(str(self.suspended_ms))
        temporary.replace(_SUSPEND)

    async def op_fenced_write(self, request: Json) -> Json:
        lease, body = self.leases[request["lease"]], request.get("body", "").encode()

        def send() -> Json:
            try:
                if "no_token" in self.broken:
                    plain = urllib.request.Request(request["url"], method="POST")
                    try:
                        with urllib.request.urlopen(plain, body, 30) as response:
                            return {"status": response.status, "code": None}
                    except urllib.error.HTTPError as error:
                        refusal = http.error_of_problem(error.headers.get("Content-Type") or "", error.read())
                        return {"status": error.code, "code": refusal.code if refusal else None}
                with http.urlopen(lease, request["url"], body) as response:
                    return {"status": response.status, "code": None}
            except leasehold.LeaseholdError as error:
                cause = error.__cause__
                return {"status": getattr(cause, "code", 0), "code": error.code}

        return await asyncio.to_thread(send)

    async def op_fork_state(self, request: Json) -> Json:
        lease = self.leases[request["lease"]]
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, json.dumps({**self.state(lease), "lost": lease.lost.is_set()}).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        state: Json = json.loads(text)
        return state


async def main() -> None:
    driver = Driver()
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        if line.strip():
            request = json.loads(line)
            driver.running[request["id"]] = asyncio.ensure_future(driver.handle(request))
    # Like a crash: nothing is closed or released.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
