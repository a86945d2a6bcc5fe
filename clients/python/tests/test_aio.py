"""The asyncio API over the real server: the same names, cancellation, and event loops."""

from __future__ import annotations

import asyncio
import inspect
import time

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
                acquiring = asyncio.create_task(client.lock("aio/storm").acquire())
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
