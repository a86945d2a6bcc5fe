"""Message queues: every message is with one worker at a time, until it is acknowledged or out of attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Optional, Union

from .. import _native
from ..durations import Duration, milliseconds, optional_milliseconds, seconds
from ..errors import LeaseholdError
from ..records import DeadLetter, QueueStats
from ._wait import run, wait_some


class Message:
    """A received message. Its receipt is a fencing token.

    ``async with message:`` extends it while the block runs, acknowledges it at the end, and returns it after an exception. A message that is
    neither acknowledged nor returned goes back when its last reference is deleted.
    """

    def __init__(self, native: _native.NativeMessage) -> None:
        self._native = native
        #: Body, id, number of this attempt from 1, and the receipt as a token.
        self.body, self.id, self.attempt, self.token, self.receipt = native.content()
        self._extending: Optional[_native.Operation[None]] = None

    def remaining(self) -> float:
        """Seconds that the message belongs to this worker without an extension."""
        return self._native.remaining()

    async def extend(self, visibility: Duration) -> None:
        """Extends the visibility, counted from now."""
        await run(self._native.extend(milliseconds("visibility", visibility)))

    async def ack(self) -> None:
        """Acknowledges the message, which deletes it. An outdated receipt is refused."""
        self._stop_extending()
        await run(self._native.ack())

    async def nack(self, delay: Duration = 0) -> bool:
        """Returns the message to the queue. True if this was its last attempt, and it is dead now."""
        self._stop_extending()
        return await run(self._native.nack(milliseconds("delay", delay)))

    def _stop_extending(self) -> None:
        if self._extending is not None:
            self._extending.cancel()
            self._extending = None

    async def __aenter__(self) -> Message:
        self._extending = self._native.keep_extended()
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if raised is None:
            await self.ack()
            return
        try:
            await self.nack()
        except LeaseholdError:
            # It returns by itself at the end of its visibility; the error of the block is more important.
            pass

    def __repr__(self) -> str:
        return f"<Message {self.id} attempt {self.attempt}>"


class Queue:
    """A queue. It needs no setup: it exists while it has messages. Iterating it receives messages, and never ends."""

    def __init__(self, native: _native.NativeQueue) -> None:
        self._native = native

    async def send(
        self, body: Union[str, bytes], *, delay: Optional[Duration] = None, max_attempts: Optional[int] = None
    ) -> int:
        """Sends a message. It is durable when this returns. Returns its id."""
        data = body.encode() if isinstance(body, str) else body
        return await run(self._native.send(data, optional_milliseconds("delay", delay), max_attempts))

    async def receive(self, limit: int = 1) -> list[Message]:
        """Receives up to ``limit`` messages that are ready now, oldest first."""
        return [Message(native) for native in await run(self._native.receive(limit))]

    async def recv(self, timeout: Optional[Duration] = None) -> Optional[Message]:
        """Waits for a message. None after the timeout."""
        native = await wait_some(self._native.recv(), seconds("timeout", timeout))
        return None if native is None else Message(native)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            yield Message(await run(self._native.recv()))

    async def stats(self) -> QueueStats:
        """Number of messages by state."""
        return QueueStats(*await run(self._native.stats()))

    async def dead_letters(self, after: int = 0) -> list[DeadLetter]:
        """Up to 100 dead letters with a higher id than ``after``."""
        return [DeadLetter(*row) for row in await run(self._native.dead_letters(after))]

    async def redrive(self, id: int) -> None:
        """Makes a dead message ready again, with all its attempts."""
        await run(self._native.redrive(id))

    async def discard(self, id: int) -> None:
        """Deletes a dead message."""
        await run(self._native.discard(id))
