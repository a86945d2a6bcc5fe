"""The gate of an HTTP application: admits requests by their token, and keeps the mark on disk. ASGI and WSGI share it.

The mark is raised only while no request is in flight. Requests hold a shared lock on a file, and a raise takes it exclusively; so several
processes of one machine can serve the application, and a killed process leaves no lock behind. The mark is on disk before a request
under it passes.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional, Union

from .. import _native
from ..errors import LeaseholdError, error_of, invalid_argument

#: Methods that change nothing.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

_STATUS = {"STALE_TOKEN": 412, "TOKEN_INVALID": 400, "WRONG_CLUSTER": 421, "UNAVAILABLE": 503, "STORAGE_FAILED": 500}


class Gate:
    """Admits requests for one resource."""

    def __init__(
        self, marks: Union[str, os.PathLike[str]], *, resource: str, cluster: str, slot: int = 0, timeout: float = 5.0
    ) -> None:
        if len(cluster) != 16 or not all(letter in "0123456789abcdef" for letter in cluster):
            raise invalid_argument("cluster", f"{cluster!r} is not a cluster id; `leasehold status` shows it")
        self._mark_path = Path(marks)
        self._lock_path = self._mark_path.with_name(self._mark_path.name + ".lock")
        self._subject = (cluster, _native.resource_hash(resource), slot)
        self._resource = resource
        self._timeout = timeout
        self._threads = threading.Lock()

    def arm(self) -> None:
        """Creates the mark, once per resource. An existing mark is kept."""
        if not self._mark_path.exists():
            with self._exclusive(time.monotonic() + self._timeout):
                if not self._mark_path.exists():
                    self._store(0)

    @contextmanager
    def admitted(self, token: Optional[str]) -> Iterator[None]:
        """Admits one request. It is in flight until the end of the block."""
        number = self._number(token)
        deadline = time.monotonic() + self._timeout
        while True:
            with self._shared(deadline):
                mark = self._mark()
                if number < mark:
                    raise _refusal(
                        "STALE_TOKEN",
                        f"a newer token has been used on {self._resource}",
                        "Stop writing. The lease of this token has ended.",
                        presented=number,
                        mark=mark,
                    )
                if number == mark:
                    yield
                    return
            self._raise(number, deadline)

    def claim(self, token: Optional[str]) -> None:
        """Raises the mark, durably. Waits for requests in flight."""
        with self.admitted(token):
            pass

    def _number(self, token: Optional[str]) -> int:
        if not token:
            raise _refusal("TOKEN_INVALID", "no token was presented", "Send the header Lease-Token.", reason="absent")
        cluster, resource, slot, number = _native.parse_token(token)
        if cluster != self._subject[0]:
            raise _refusal("WRONG_CLUSTER", "the token is from another cluster", "Use the target of this cluster.")
        if (resource, slot) != self._subject[1:]:
            reason = "resource" if resource != self._subject[1] else "slot"
            step = "Present the token of a lease on this resource."
            raise _refusal("TOKEN_INVALID", f"the token is not for {self._resource}", step, reason=reason)
        return number

    def _raise(self, number: int, deadline: float) -> None:
        with self._exclusive(deadline):
            if self._mark() < number:
                self._store(number)

    def _mark(self) -> int:
        try:
            stored = json.loads(self._mark_path.read_text())
            if (stored["cluster"], stored["resource"], stored["slot"]) == self._subject:
                return int(stored["mark"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        step = "Arm the gate if nothing was written yet; otherwise restore the file."
        raise _refusal("STORAGE_FAILED", f"{self._mark_path} holds no mark of {self._resource}", step, reason="missing")

    def _store(self, number: int) -> None:
        cluster, resource, slot = self._subject
        text = json.dumps({"cluster": cluster, "resource": resource, "slot": slot, "mark": str(number)})
        temporary = self._mark_path.with_name(self._mark_path.name + ".new")
        with open(temporary, "w", encoding="utf-8", opener=_private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._mark_path)
        folder = os.open(self._mark_path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _shared(self, deadline: float) -> Iterator[None]:
        with self._locked(fcntl.LOCK_SH, deadline):
            yield

    @contextmanager
    def _exclusive(self, deadline: float) -> Iterator[None]:
        # A waiting raise keeps new requests of this process out, so that it cannot starve.
        with self._threads, self._locked(fcntl.LOCK_EX, deadline):
            yield

    @contextmanager
    def _locked(self, kind: int, deadline: float) -> Iterator[None]:
        if kind == fcntl.LOCK_SH:
            with self._threads:
                pass
        with open(self._lock_path, "a", opener=_private) as file:
            while True:
                try:
                    fcntl.flock(file, kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        message = f"requests on {self._resource} are still in flight"
                        raise _refusal("UNAVAILABLE", message, "Retry later.") from None
                    time.sleep(0.01)
            yield


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _refusal(code: str, message: str, step: str, **fields: object) -> LeaseholdError:
    return error_of(code, message, step, code == "UNAVAILABLE", {name: str(one) for name, one in fields.items()}, None)


def problem(error: LeaseholdError) -> tuple[int, bytes]:
    """Status and body of a refusal, as the fences of the server send them."""
    status = _STATUS.get(error.code, 400)
    body = {
        "type": f"urn:leasehold:error:{error.code.lower()}",
        "title": error.message,
        "status": status,
        "detail": error.message,
        "code": error.code,
        "next_step": error.next_step,
        **error.fields,
    }
    return status, json.dumps(body).encode()


#: Path of a claim.
CLAIM_PATH = "/-/claim"
