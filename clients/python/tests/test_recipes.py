"""All recipes over the real server, blocking; and each of them once with asyncio."""

from __future__ import annotations

import asyncio
import threading
import urllib.request

import pytest

import leasehold
from leasehold import Client, CredentialIssuer, CredentialVerifier, Leader, aio
from leasehold.testing import TestServer

from servers import PATIENCE, Server, wait_until


def test_one_candidate_leads_and_observers_see_the_leader(server: Server) -> None:
    with Client(server.address, holder="a") as first, Client(server.address, holder="b") as second:
        observed = second.election("recipes/leader").observe()
        assert next(observed) is None
        with first.election("recipes/leader", metadata="10.0.0.1:80") as lease:
            expected = Leader("a", lease.token_number, "10.0.0.1:80")
            assert next(observed) == expected == second.election("recipes/leader").leader()
            elected: list[leasehold.Lease] = []
            candidate = threading.Thread(target=lambda: elected.append(second.election("recipes/leader").campaign()))
            candidate.start()
            assert not elected
        candidate.join()
        assert elected[0].token_number > lease.token_number
        leader = next(observed)
        while leader is None or leader.holder != "b":
            leader = next(observed)
        elected[0].release()


def test_a_message_is_delivered_until_it_is_acknowledged(server: Server) -> None:
    with Client(server.address, holder="a") as client:
        queue = client.queue("recipes/queue", visibility=5)
        sent = queue.send("pay 7", max_attempts=2)
        with pytest.raises(ZeroDivisionError):
            with queue.recv(PATIENCE) or pytest.fail("no message") as message:
                assert (message.id, message.body, message.attempt) == (sent, b"pay 7", 1)
                assert message.token.startswith("lh1-") and 0 < message.remaining() <= 5
                raise ZeroDivisionError
        for message in queue:
            with message:
                assert (message.id, message.attempt) == (sent, 2)
                message.extend("20s")
            break
        assert queue.receive(5) == []
        assert queue.recv(0.05) is None
        with pytest.raises(leasehold.ConflictError):
            message.ack()


def test_a_message_without_attempts_is_a_dead_letter(server: Server) -> None:
    with Client(server.address, holder="a") as client:
        queue = client.queue("recipes/dead")
        sent = queue.send(b"x", max_attempts=1)
        (message,) = queue.receive()
        assert message.nack() is True
        assert (queue.stats().dead, queue.stats().ready) == (1, 0)
        assert [(letter.id, letter.body) for letter in queue.dead_letters()] == [(sent, b"x")]
        queue.redrive(sent)
        (message,) = queue.receive()
        message.nack()
        queue.discard(sent)
        assert queue.stats().dead == 0


def test_a_long_message_is_extended_while_its_block_runs(leasehold_server: TestServer) -> None:
    client, other = leasehold_server.client("a"), leasehold_server.client("b")
    queue = client.queue("jobs", visibility=2)
    queue.send("x")
    message = queue.recv(PATIENCE)
    assert message is not None
    with message:
        for _ in range(10):
            leasehold_server.advance(1)
            wait_until(lambda: message.remaining() > 1.2, "the message is extended")
        assert other.queue("jobs").receive() == []
    assert queue.stats().ready == 0


def test_shards_continue_from_the_checkpoint(server: Server) -> None:
    with Client(server.address, holder="a") as first, Client(server.address, holder="b") as second:
        with first.join_shards("recipes/shards", 2, poll_interval=0.05) as worker:
            shards = {shard.index: shard for shard in (worker.next_assignment(), worker.next_assignment())}
            assert set(shards) == {0, 1} and shards[0].resume() is None
            shards[0].checkpoint("17")
        for shard in shards.values():
            shard.release()
        with second.join_shards("recipes/shards", 2, poll_interval=0.05) as worker:
            for shard in worker:
                if shard.index == 0:
                    assert shard.resume() == b"17"
                    break


def test_instances_join_and_leave(server: Server) -> None:
    with Client(server.address, holder="a") as client, Client(server.address, holder="b") as other:
        first = other.register("recipes/db", "one", details="10.0.0.1:5432")
        discovery = client.discover("recipes/db")
        assert [(one.name, one.details) for one in discovery.instances] == [("one", "10.0.0.1:5432")]
        second = other.register("recipes/db", "two")
        change = discovery.next_change()
        assert change.joined and change.instance.name == "two" and len(discovery.instances) == 2
        first.release()
        change = next(iter(discovery))
        assert not change.joined and change.instance.name == "one"
        assert [one.name for one in discovery.instances] == ["two"]
        with pytest.raises(leasehold.BusyError):
            client.register("recipes/db", "two")
        second.release()


def test_units_are_reserved_confirmed_and_canceled(server: Server) -> None:
    url = f"http://{server.address}/v1/leases/recipes/seats:capacity"
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, b'{"units":3}', headers)).close()
    with Client(server.address, holder="a") as client:
        reservation = client.reserve("recipes/seats", 2, ttl=30)
        status = reservation.status()
        assert status.state == "open" and status.remaining is not None and 0 < status.remaining <= 30
        with pytest.raises(leasehold.LeaseholdError):
            client.reserve("recipes/seats", 2)
        same = client.reservation("recipes/seats", reservation.token)
        same.resize(1)
        assert same.extend() > 0
        same.confirm()
        assert reservation.status().state == "settled"
        other = client.reserve("recipes/seats", 2)
        other.cancel()
        assert other.status().state == "settled"
        with pytest.raises(leasehold.InvalidArgumentError):
            client.reservation("recipes/seats", "lh1-nonsense")


def test_a_collector_stops_at_the_lowest_pin(server: Server) -> None:
    with Client(server.address, holder="a") as reader, Client(server.address, holder="gc") as collector:
        with reader.pin("recipes/log", 10) as pin:
            assert collector.collect("recipes/log", 100) == 10
            pin.move_to(25)
            assert (pin.position, collector.collect("recipes/log", 100)) == (25, 25)
        assert collector.collect("recipes/log", 100) == 100
        with pytest.raises(leasehold.ConflictError):
            reader.pin("recipes/log", 50)


def test_a_cache_is_consistent_with_writes(server: Server) -> None:
    with Client(server.address, holder="a") as first, Client(server.address, holder="b") as second:
        stored, loads = {"x": 1}, []

        def load() -> int:
            loads.append(1)
            return stored["x"]

        here, there = first.cache(ttl=30), second.cache(ttl=30)
        assert (here.get("recipes/x", load), here.get("recipes/x", load), len(loads)) == (1, 1, 1)
        assert here.peek("recipes/x") == 1 and there.peek("recipes/x") is None
        intents: list[int] = []

        def write(intent: int) -> None:
            intents.append(intent)
            stored["x"] = 2

        version = there.write("recipes/x", write)
        assert version > 0 and intents
        wait_until(lambda: here.peek("recipes/x") is None, "the copy is invalidated")
        assert here.get("recipes/x", load) == 2
        filled = there.get_or_fill("recipes/y", lambda version: None, lambda version: "filled")
        assert filled == "filled"


def test_an_error_of_a_callback_is_the_error_of_the_call(server: Server) -> None:
    with Client(server.address, holder="a") as client:
        cache = client.cache()

        def fail(*_: int) -> int:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            cache.get("recipes/fail", fail)
        with pytest.raises(ZeroDivisionError):
            cache.write("recipes/fail", fail)
        assert cache.get("recipes/fail", lambda: 3) == 3


def test_a_credential_proves_a_lease_offline(server: Server) -> None:
    with Client(server.address, holder="a") as client:
        with client.lock("recipes/issuer") as own, client.lock("recipes/disk") as lease:
            issuer = CredentialIssuer("https://issuer.example", own)
            text = issuer.issue(lease, audience="disk", subject="a", lifetime=10)
            verifier = CredentialVerifier("https://issuer.example", "disk", issuer.jwks())
            with pytest.raises(leasehold.AccessDeniedError) as refused:
                verifier.verify(text, "recipes/disk")
            assert refused.value.fields["reason"] == "list_too_old"
            verifier.set_revocation_list(issuer.revocation_list())
            verified = verifier.verify(text, "recipes/disk")
            assert (verified.subject, verified.token_number) == ("a", lease.token_number)
            with pytest.raises(leasehold.AccessDeniedError):
                verifier.verify(text, "recipes/other")


def test_the_recipes_work_with_asyncio(server: Server) -> None:
    async def main() -> None:
        async with aio.Client(server.address, holder="a") as client:
            queue = client.queue("aio/queue")
            await queue.send("one")
            async for message in queue:
                async with message:
                    assert message.body == b"one"
                break
            async with client.election("aio/leader") as lease:
                leader = await client.election("aio/leader").leader()
                assert leader is not None and leader.token_number == lease.token_number
            registration = await client.register("aio/db", "one")
            discovery = await client.discover("aio/db")
            await registration.release()
            async for change in discovery:
                assert not change.joined
                break
            async with await client.join_shards("aio/shards", 1, poll_interval=0.05) as worker:
                shard = await worker.next_assignment()
                assert await shard.checkpoint("1") > 0
            async with await client.pin("aio/log", 3):
                assert await client.collect("aio/log", 9) == 3

            async def load() -> str:
                await asyncio.sleep(0)
                return "value"

            assert await client.cache().get("aio/key", load) == "value"
            async with client.lock("aio/state") as held:
                await held.put("k", "v")
            assert (await client.state("aio/state"))["k"].value == b"v"

    asyncio.run(main())
