"""Locks over the real server: acquire, wait, refuse, release, and the errors."""

from __future__ import annotations

import pickle
import threading
import time
from datetime import timedelta

import pytest

import leasehold
from leasehold import Client, current_lease

from servers import Server, wait_until


def test_a_block_holds_the_lease_and_releases_it(server: Server) -> None:
    with Client(server.address, holder="a") as client:
        with client.lock("locks/block") as lease:
            assert lease.token.startswith("lh1-")
            assert (lease.state, lease.lost.is_set(), lease.slot) == ("held", False, 0)
            assert 0 < lease.remaining() <= 30
            shown = client.show("locks/block")
            assert shown["leases"][0]["token_number"] == str(lease.token_number)
        assert (lease.state, lease.lost.is_set()) == ("lost", False)
        with client.lock("locks/block") as again:
            assert again.token_number > lease.token_number


def test_a_held_resource_is_busy_and_names_its_holder(server: Server) -> None:
    with Client(server.address, holder="first") as first, Client(server.address, holder="second") as second:
        with first.lock("locks/busy"):
            with pytest.raises(leasehold.BusyError) as refused:
                second.lock("locks/busy").acquire()
            assert (refused.value.code, refused.value.holder, refused.value.is_retryable) == ("BUSY", "first", False)
            assert refused.value.next_step
            assert second.lock("locks/busy").try_acquire() is None
            with pytest.raises(leasehold.WaitTimeoutError):
                second.lock("locks/busy", wait=timedelta(milliseconds=150)).acquire()


def test_a_waiter_is_granted_after_the_release(server: Server) -> None:
    with Client(server.address, holder="a") as first, Client(server.address, holder="b") as second:
        held = first.lock("locks/wait").acquire()
        granted: list[leasehold.Lease] = []
        waiter = threading.Thread(target=lambda: granted.append(second.lock("locks/wait", wait="60s").acquire()))
        waiter.start()
        wait_until(lambda: bool(first.show("locks/wait").get("waiters")), "the waiter is queued")
        held.release()
        held.release()
        waiter.join()
        assert granted[0].token_number > held.token_number


def test_several_resources_are_acquired_together_or_not_at_all(server: Server) -> None:
    with Client(server.address, holder="a") as first, Client(server.address, holder="b") as second:
        with second.lock("locks/all-b"):
            with pytest.raises(leasehold.BusyError):
                first.lock_all(["locks/all-a", "locks/all-b"]).acquire()
            with second.lock("locks/all-a"):
                pass
        with first.lock_all(["locks/all-a", "locks/all-b"]) as leases:
            assert [lease.resource for lease in leases] == ["locks/all-a", "locks/all-b"]
            assert second.lock("locks/all-b").try_acquire() is None
        with second.lock("locks/all-b"):
            pass


def test_slots_and_shared_leases(server: Server) -> None:
    with Client(server.address, holder="a") as client:
        one, two = client.lock("locks/slots", slots=2).acquire(), client.lock("locks/slots", slots=2).acquire()
        assert {one.slot, two.slot} == {0, 1}
        assert client.lock("locks/slots", slots=2).try_acquire() is None
        with client.lock("locks/shared", shared=True) as reader, client.lock("locks/shared", shared=True):
            assert reader.slot is None
            assert client.lock("locks/shared").try_acquire() is None


def test_a_decorated_function_holds_the_lease(server: Server) -> None:
    client = Client(server.address, holder="a")

    @client.locked("locks/decorated", wait=10)
    def settle(cents: int) -> tuple[int, int]:
        """Settles."""
        return cents, current_lease().token_number

    first, second = settle(5), settle(7)
    assert (first[0], second[0]) == (5, 7) and second[1] > first[1]
    assert settle.__doc__ == "Settles."
    with pytest.raises(LookupError):
        current_lease()
    client.close()


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("wait", {"wait": "10"}),
        ("wait", {"wait": -1}),
        ("ttl", {"ttl": float("nan")}),
        ("ttl", {"ttl": "1ms"}),
        ("ttl", {"ttl": 3600}),
        ("on_lost", {"on_lost": "panic"}),
        ("shared", {"shared": True, "slots": 2}),
        ("priority", {"priority": 256}),
    ],
)
def test_an_invalid_argument_names_its_field(server: Server, field: str, settings: dict[str, object]) -> None:
    client = Client(server.address)
    with pytest.raises(leasehold.InvalidArgumentError) as refused:
        client.lock("locks/invalid", **settings).acquire()  # type: ignore[arg-type]
    assert refused.value.fields["field"] == field
    assert isinstance(refused.value, ValueError)
    assert refused.value.next_step


def test_an_invalid_address_and_an_incomplete_identity_are_refused() -> None:
    with pytest.raises(leasehold.InvalidArgumentError, match="port"):
        Client("localhost")
    with pytest.raises(leasehold.InvalidArgumentError, match="tls_cert"):
        Client("https://localhost:7421", tls_ca="ca.pem")


def test_without_a_server_the_error_is_retryable() -> None:
    client = Client("127.0.0.1:1", request_timeout=0.5)
    with pytest.raises(leasehold.UnavailableError) as refused:
        client.lock("x").acquire()
    assert refused.value.is_retryable and isinstance(refused.value, ConnectionError)


def test_errors_survive_pickling(server: Server) -> None:
    client = Client(server.address, holder="a")
    with client.lock("locks/pickle"):
        with pytest.raises(leasehold.BusyError) as refused:
            client.lock("locks/pickle").acquire()
    copied = pickle.loads(pickle.dumps(refused.value))
    assert type(copied) is leasehold.BusyError
    assert (copied.code, copied.holder, str(copied)) == (refused.value.code, refused.value.holder, str(refused.value))


def test_closing_the_client_releases_everything_in_time(server: Server) -> None:
    client = Client(server.address, holder="a")
    lease = client.lock("locks/close").acquire()
    started = time.monotonic()
    client.close()
    assert time.monotonic() - started < 10
    assert lease.state == "lost"
    with Client(server.address, holder="b") as other, other.lock("locks/close"):
        pass
    with client.lock("locks/close", wait=10) as again:
        assert again.state == "held", "a closed client opens a new session"


def test_small_state_is_written_under_the_lease(server: Server) -> None:
    with Client(server.address, holder="a") as client:
        with client.lock("locks/state") as lease:
            revision = lease.put("checkpoint", "17")
            with pytest.raises(leasehold.ConflictError):
                lease.put("checkpoint", b"18", expected_revision=revision + 1)
            assert lease.put("checkpoint", b"18", expected_revision=revision) > revision
        stored = client.state("locks/state")["checkpoint"]
        assert (stored.value, stored.token_number) == (b"18", lease.token_number)
        with pytest.raises(leasehold.LeaseLostError):
            lease.put("checkpoint", "19")


def test_the_users_error_is_not_masked(server: Server) -> None:
    with Client(server.address, holder="a") as client:
        with pytest.raises(ZeroDivisionError):
            with client.lock("locks/error"):
                raise ZeroDivisionError
        with client.lock("locks/error"):
            pass


def test_a_timeout_is_an_unknown_outcome_that_resolves_to_the_lease(server: Server) -> None:
    with Client(server.address, holder="a") as first, Client(server.address, holder="b") as second:
        held = first.lock("locks/unknown").acquire()
        with pytest.raises(leasehold.OutcomeUnknownError) as unknown:
            second.lock("locks/unknown", wait=60, timeout=0.3).acquire()
        held.release()
        lease = unknown.value.resolve()
        assert isinstance(lease, leasehold.Lease) and lease.state == "held"
        lease.release()
