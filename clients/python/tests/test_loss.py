"""What happens when a lease is lost, with the server in memory and a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable

import pytest

import leasehold
from leasehold import _native, _wait, aio
from leasehold.aio import _wait as aio_wait
from leasehold.testing import TestServer

from servers import PATIENCE, wait_until


def test_the_local_deadline_comes_before_the_end_of_the_ttl(leasehold_server: TestServer) -> None:
    client = leasehold_server.client("worker-1")
    lease = client.lock("jobs/settle", ttl=5, on_lost="ignore").acquire()
    assert 4.8 < lease.remaining() <= 4.9
    leasehold_server.partition(client)
    leasehold_server.advance(4.91)
    assert (lease.state, lease.lost.is_set(), lease.remaining()) == ("suspended", True, 0.0)
    assert leasehold_server.holders("jobs/settle"), "the server still considers it held"
    leasehold_server.heal(client)
    leasehold_server.advance(2)
    loss = lease.loss
    assert isinstance(loss, leasehold.LeaseLostError)
    assert lease.lost.is_set(), "work that had to stop stays stopped"


def test_a_renewed_lease_stays_held(leasehold_server: TestServer) -> None:
    lease = leasehold_server.client("worker-1").lock("jobs/settle", ttl=5).acquire()
    leasehold_server.advance(60)
    assert (lease.state, lease.lost.is_set(), lease.loss) == ("held", False, None)
    lease.raise_if_lost()


def test_a_revocation_is_a_loss_with_its_reason(leasehold_server: TestServer) -> None:
    lease = leasehold_server.client("worker-1").lock("jobs/settle", on_lost="ignore").acquire()
    leasehold_server.revoke("jobs/settle")
    wait_until(lambda: lease.state == "lost", "the lease is lost")
    with pytest.raises(leasehold.LeaseLostError) as lost:
        lease.raise_if_lost()
    assert (lost.value.state, lost.value.reason, lost.value.may_acquire_again) == ("revoked", "operator", False)


def test_a_lost_lease_stops_the_thread_of_its_block(leasehold_server: TestServer) -> None:
    client = leasehold_server.client("worker-1")
    entered, outcome = threading.Event(), []

    def work() -> None:
        try:
            with client.lock("jobs/settle"):
                entered.set()
                deadline = time.monotonic() + PATIENCE
                while time.monotonic() < deadline:
                    time.sleep(0.001)
                outcome.append("finished")
        except leasehold.LeaseLostError as error:
            outcome.append(error.state or "")

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(PATIENCE)
    leasehold_server.revoke("jobs/settle")
    thread.join()
    assert outcome == ["revoked"]


def test_a_lost_lease_stops_a_wait_inside_of_its_block(leasehold_server: TestServer) -> None:
    client, other = leasehold_server.client("worker-1"), leasehold_server.client("worker-2")
    blocker = other.lock("other").acquire()
    entered, outcome = threading.Event(), []

    def work() -> None:
        try:
            with client.lock("jobs/settle"):
                entered.set()
                client.lock("other", wait=600).acquire()
        except leasehold.LeaseLostError as error:
            outcome.append(error.state)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(PATIENCE)
    leasehold_server.revoke("jobs/settle")
    thread.join()
    assert outcome == ["revoked"]
    blocker.release()


def test_no_interruption_reaches_code_after_the_block(leasehold_server: TestServer) -> None:
    client, lost = leasehold_server.client("worker-1"), 0

    def revoke(resource: str) -> None:
        with contextlib.suppress(leasehold.NotFoundError):
            leasehold_server.revoke(resource)

    for round in range(60):
        revoking = threading.Thread(target=revoke, args=(f"jobs/{round}",))
        try:
            # The revocation arrives before, while and after the block is left.
            with client.lock(f"jobs/{round}") as lease:
                revoking.start()
                lease.lost.wait((round % 6) * 0.002)
        except leasehold.LeaseLostError:
            lost += 1
        revoking.join()
        leasehold_server.settle()
        sum(range(1000))
    assert lost > 0, "no revocation arrived inside of a block"


def test_a_lost_lease_cancels_the_task_of_its_block(leasehold_server: TestServer) -> None:
    async def main() -> None:
        client = leasehold_server.aio_client("worker-1")
        with pytest.raises(leasehold.LeaseLostError) as lost:
            async with client.lock("jobs/settle"):
                await asyncio.to_thread(leasehold_server.revoke, "jobs/settle")
                await asyncio.sleep(PATIENCE)
                pytest.fail("the task was not canceled")
        assert lost.value.state == "revoked"
        # The task itself is not canceled: the block was.
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_cancellation_by_others_stays_one(leasehold_server: TestServer) -> None:
    async def main() -> None:
        client = leasehold_server.aio_client("worker-1")
        entered = asyncio.Event()

        async def work() -> None:
            async with client.lock("jobs/settle"):
                entered.set()
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.lock("jobs/settle").try_acquire() is not None

    asyncio.run(main())


def test_a_callable_is_called_with_the_lost_lease(leasehold_server: TestServer) -> None:
    client, lost = leasehold_server.client("worker-1"), []
    called = threading.Event()

    def on_lost(lease: leasehold.Lease) -> None:
        lost.append(lease)
        called.set()

    lease = client.lock("jobs/settle", on_lost=on_lost).acquire()
    leasehold_server.revoke("jobs/settle")
    assert called.wait(PATIENCE)
    assert lost == [lease]
    called.clear()
    client.lock("other", on_lost=on_lost).acquire().release()
    leasehold_server.settle()
    assert not called.wait(0.05), "a release is not a loss"


def test_a_callback_that_fails_exits_or_blocks_stops_no_other(leasehold_server: TestServer) -> None:
    client, blocked, called = leasehold_server.client("worker-1"), threading.Event(), threading.Event()

    def fail(lease: leasehold.Lease) -> None:
        raise ValueError("a callback of the program fails")

    def leave(lease: leasehold.Lease) -> None:
        raise SystemExit(1)

    def block(lease: leasehold.Lease) -> None:
        blocked.set()
        threading.Event().wait()

    callbacks = {"fail": fail, "leave": leave, "block": block, "last": lambda lease: called.set()}
    leases = [client.lock(name, on_lost=callback).acquire() for name, callback in callbacks.items()]
    for name in callbacks:
        leasehold_server.revoke(name)
    assert blocked.wait(PATIENCE) and called.wait(PATIENCE)
    # The same thread interrupts blocks.
    with pytest.raises(leasehold.LeaseLostError):
        with client.lock("interrupted"):
            leasehold_server.revoke("interrupted")
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                time.sleep(0.001)
            pytest.fail("the block was not stopped")
    assert all(lease.state == "lost" for lease in leases)


def test_a_lease_with_a_callback_leaves_nothing_behind(leasehold_server: TestServer) -> None:
    client = leasehold_server.client("worker-1")
    called: list[leasehold.Lease] = []
    before = len(_wait._watcher._callbacks)
    gone = []
    for _ in range(3):
        with client.lock("jobs/settle", on_lost=called.append) as lease:
            gone.append(weakref.ref(lease))
    del lease
    dropped = client.lock("jobs/dropped", on_lost=called.append).acquire()
    gone.append(weakref.ref(dropped))
    del dropped
    gc.collect()
    assert [reference() for reference in gone] == [None] * 4
    assert len(_wait._watcher._callbacks) == before
    wait_until(lambda: not leasehold_server.holders("jobs/dropped"), "the last reference released the lease")
    assert called == []


def test_a_release_just_after_the_loss_does_not_hide_it(leasehold_server: TestServer) -> None:
    client = leasehold_server.client("worker-1")
    for round in range(30):
        called = threading.Event()
        lease = client.lock(f"jobs/{round}", on_lost=lambda _: called.set()).acquire()
        leasehold_server.revoke(f"jobs/{round}")
        while not lease.lost.is_set():
            pass
        with contextlib.suppress(leasehold.LeaseholdError):
            lease.release()
        del lease
        assert called.wait(PATIENCE)


def test_a_failing_callback_loses_no_completion_of_its_event_loop(leasehold_server: TestServer) -> None:
    reported: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        client = leasehold_server.aio_client("worker-1")

        def fail(lease: aio.Lease) -> None:
            raise ValueError("a callback of the program fails")

        leases = [await client.lock(f"jobs/{number}", on_lost=fail).acquire() for number in range(5)]
        waits = [asyncio.create_task(lease.lost.wait()) for lease in leases]
        await asyncio.sleep(0)
        for number in range(5):
            leasehold_server.revoke(f"jobs/{number}")
        # The event loop did not run meanwhile: all of them arrive at once.
        assert await asyncio.wait_for(asyncio.gather(*waits), PATIENCE) == [True] * 5
        async with client.lock("another") as lease:
            assert lease.state == "held"

    asyncio.run(main())
    assert [type(one) for one in reported] == [ValueError] * 5


@pytest.mark.parametrize("turns", range(5))
def test_no_cancellation_is_lost_when_the_lease_is_granted(leasehold_server: TestServer, turns: int) -> None:
    async def main() -> None:
        client, loop = leasehold_server.aio_client("worker-1"), asyncio.get_running_loop()
        notifications = aio_wait._notifications()
        register, canceled = notifications.register, []

        def cancel_after(left: int) -> None:
            if left > 0:
                loop.call_soon(cancel_after, left - 1)
            else:
                canceled.append(acquiring.cancel())

        def register_and_cancel(callback: Callable[[], None]) -> tuple[_native.CompletionQueue, int]:
            def granted() -> None:
                callback()
                cancel_after(turns)

            return register(granted)

        while not canceled:
            notifications.register = register_and_cancel  # type: ignore[method-assign]
            acquiring = asyncio.create_task(client.lock("jobs/settle", timeout=PATIENCE).acquire())
            await asyncio.wait({acquiring})
            notifications.register = register  # type: ignore[method-assign]
            for _ in range(turns + 2):
                await asyncio.sleep(0)
            if not canceled:
                # The grant arrived before the task registered for it, so nothing was canceled: once more.
                await acquiring.result().release()
        assert acquiring.cancelled() == canceled[0], "a task that was canceled in time ends as canceled"
        if not acquiring.cancelled():
            await acquiring.result().release()
        async with client.lock("jobs/settle", wait=PATIENCE):
            pass

    asyncio.run(main())


def test_a_coroutine_is_called_with_the_lost_lease(leasehold_server: TestServer) -> None:
    async def main() -> None:
        client = leasehold_server.aio_client("worker-1")
        called: asyncio.Future[aio.Lease] = asyncio.get_running_loop().create_future()

        async def on_lost(lease: aio.Lease) -> None:
            called.set_result(lease)

        lease = await client.lock("jobs/settle", on_lost=on_lost).acquire()
        await asyncio.to_thread(leasehold_server.revoke, "jobs/settle")
        assert await asyncio.wait_for(called, PATIENCE) is lease

    asyncio.run(main())


def test_a_handoff_drains_before_the_successor_starts(leasehold_server: TestServer) -> None:
    first, second = leasehold_server.client("first"), leasehold_server.client("second")
    lease = first.lock("jobs/settle").acquire()
    granted: list[leasehold.Lease] = []
    waiter = threading.Thread(target=lambda: granted.append(second.lock("jobs/settle", wait=60).acquire()))
    waiter.start()
    wait_until(lambda: _waits(first), "the successor waits")
    lease.handoff(mode="gap")
    assert lease.wait_draining(PATIENCE)
    assert 0 < (lease.draining() or 0) <= 30
    assert lease.state == "held" and not granted
    lease.finish_drain()
    waiter.join()
    granted[0].wait_claimable()
    assert granted[0].token_number > lease.token_number


def _waits(client: leasehold.Client) -> bool:
    return bool(client.show("jobs/settle").get("waiters"))
