"""The asyncio API over the real server: the same names, cancellation, and event loops."""

from __future__ import annotations

import asyncio
import inspect
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

import leasehold
from leasehold import aio

from servers import Server


def test_both_apis_have_the_same_names_and_parameters() -> None:
    for name in aio.__all__:
        ours, theirs = getattr(leasehold, name), getattr(aio, name)
        if not inspect.isclass(ours):
            continue
        members = {one.replace("__a", "__") for one in vars(theirs)}
        assert {one for one in vars(ours)} == members, name
        for member, function in vars(theirs).items():
            if inspect.isfunction(function) and not member.startswith("_"):
                mine = inspect.signature(getattr(ours, member)).parameters
                assert list(mine) == list(inspect.signature(function).parameters), f"{name}.{member}"


def test_a_block_holds_the_lease(server: Server) -> None:
    async def main() -> None:
        async with aio.Client(server.address, holder="a") as client:
            async with client.lock("aio/block") as lease:
                assert lease.state == "held"
                assert not await lease.lost.wait(0.01)
                with pytest.raises(leasehold.BusyError):
                    await client.lock("aio/block").acquire()
            async with client.lock("aio/block") as again:
                assert again.token_number > lease.token_number

    asyncio.run(main())


def test_canceling_a_wait_withdraws_it(server: Server) -> None:
    async def main() -> None:
        async with aio.Client(server.address, holder="a") as client:
            held = await client.lock("aio/cancel").acquire()
            waiting = asyncio.create_task(client.lock("aio/cancel", wait=60).acquire())
            while not (await client.show("aio/cancel")).get("waiters"):
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            while (await client.show("aio/cancel")).get("waiters"):
                await asyncio.sleep(0.01)
            await held.release()
            async with client.lock("aio/cancel"):
                pass

    asyncio.run(main())


def test_a_canceled_acquire_leaves_no_lease_behind(server: Server) -> None:
    async def main() -> None:
        async with aio.Client(server.address, holder="a") as client:
            async with client.lock("aio/warm"):
                pass
            for pause in range(20):
                # It waits, because a grant that arrives while its call is canceled is released after the call has ended.
                acquiring = asyncio.create_task(client.lock("aio/storm", wait=30).acquire())
                for _ in range(pause):
                    await asyncio.sleep(0)
                acquiring.cancel()
                try:
                    await (await acquiring).release()
                except asyncio.CancelledError:
                    pass
            async with client.lock("aio/storm", wait=30):
                pass

    asyncio.run(main())


@types.coroutine
def cancel_at(coroutine: Coroutine[Any, None, None], turn: int) -> Generator[Any, None, bool]:
    """Runs a coroutine, and cancels it at its wait number `turn`. False if it ends before."""
    waits, future = 0, coroutine.send(None)
    try:
        while True:
            if waits == turn:
                future = coroutine.throw(asyncio.CancelledError())
            waits += 1
            yield future
            future = coroutine.send(None)
    except StopIteration:
        return waits > turn
    except asyncio.CancelledError:
        return True


def test_a_cancellation_at_every_await_leaves_nothing_held(server: Server) -> None:
    names = ["aio/every/1", "aio/every/2", "aio/every/3"]

    async def work(client: aio.Client) -> None:
        async with client.lock(names[0], wait=30) as lease:
            await lease.put("key", "value")
            async with client.lock_all(names[1:], wait=30, timeout=60):
                await lease.check()
            await client.queue("aio/every").send("message")
            message = await client.queue("aio/every").recv(1)
            if message is not None:
                async with message:
                    await lease.rotate()
        async with client.election("aio/every/1") as leader:
            await leader.wait_lost(0.001)

    async def main() -> None:
        async with aio.Client(server.address, holder="a") as client, aio.Client(server.address, holder="b") as other:
            turn = 0
            while await cancel_at(work(client), turn):
                turn += 1
                async with other.lock_all(names, wait=30) as leases:
                    assert [lease.state for lease in leases] == ["held"] * 3, f"after a cancellation at wait {turn}"
            assert turn > 10, f"only {turn} waits"

    asyncio.run(main())


def test_one_client_serves_two_event_loops(server: Server) -> None:
    client = aio.Client(server.address, holder="a")

    async def main(index: int) -> None:
        async with client.lock(f"aio/loops/{index}") as lease:
            assert lease.state == "held"

    asyncio.run(main(1))
    asyncio.run(main(2))
    asyncio.run(client.close())


def test_the_event_loop_runs_while_operations_wait(server: Server) -> None:
    async def main() -> None:
        async with aio.Client(server.address, holder="a") as client:
            async with client.lock("aio/free"):
                waiting = asyncio.create_task(client.lock("aio/free", wait=0.5).acquire())
                turns, started = 0, time.monotonic()
                while not waiting.done():
                    await asyncio.sleep(0.001)
                    turns += 1
                assert turns > 20, f"{turns} turns in {time.monotonic() - started} s"
                with pytest.raises(leasehold.WaitTimeoutError):
                    await waiting

    asyncio.run(main())


def test_a_decorated_coroutine_holds_the_lease(server: Server) -> None:
    async def main() -> None:
        async with aio.Client(server.address, holder="a") as client:

            @client.locked("aio/decorated")
            async def work() -> str:
                return aio.current_lease().resource

            assert await work() == "aio/decorated"

    asyncio.run(main())


def test_many_leases_at_once(server: Server) -> None:
    async def main() -> None:
        async with aio.Client(server.address, holder="a") as client:
            locks = [client.lock(f"aio/many/{index}") for index in range(500)]
            leases = await asyncio.gather(*(lock.acquire() for lock in locks))
            assert len({lease.token for lease in leases}) == 500
            await asyncio.gather(*(lease.release() for lease in leases))

    asyncio.run(main())
