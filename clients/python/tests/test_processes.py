"""Properties that need whole processes: a kept interpreter lock, a stopped process, a fork, and the exit at the deadline."""

from __future__ import annotations

import os
import signal
import time

import leasehold
from leasehold import Client

from servers import PATIENCE, Server, run_program, stop, wait_until

#: A C call that keeps the interpreter lock: no thread of Python runs meanwhile.
KEEP_THE_LOCK = "import ctypes; ctypes.PyDLL(None).usleep(3_000_000)"


def test_a_kept_interpreter_lock_loses_no_lease(server: Server) -> None:
    source = f"""
import leasehold, sys
client = leasehold.Client(sys.argv[1], holder="gil", session_ttl=1)
with client.lock("processes/gil", on_lost="ignore") as lease:
    print(lease.token_number)
    {KEEP_THE_LOCK}
    print(lease.state, lease.lost.is_set())
"""
    program = run_program(source, server.address)
    assert program.stdout is not None
    number = program.stdout.readline().strip()
    with Client(server.address, holder="observer") as client:
        while program.poll() is None and (line := _leases(client, "processes/gil")):
            assert line == [number], "another holder was granted the lease"
            time.sleep(0.05)
    output, errors = program.communicate(timeout=PATIENCE)
    assert output == "held False\n", errors


def _leases(client: Client, resource: str) -> list[str]:
    try:
        return [lease["token_number"] for lease in client.show(resource)["leases"]]
    except leasehold.NotFoundError:
        return []


def test_a_stopped_process_exits_at_its_deadline_without_the_interpreter(server: Server) -> None:
    source = """
import ctypes, leasehold, sys
client = leasehold.Client(sys.argv[1], holder="exit", session_ttl=1)
with client.lock("processes/exit", on_lost="exit") as lease:
    print("held")
    ctypes.PyDLL(None).sleep(600)
"""
    program = run_program(source, server.address)
    assert program.stdout is not None and program.stdout.readline() == "held\n"
    program.send_signal(signal.SIGSTOP)
    with Client(server.address, holder="successor") as client, client.lock("processes/exit", wait=PATIENCE):
        # Its lease has ended. The interpreter is inside of a C call that keeps its lock for ten minutes.
        program.send_signal(signal.SIGCONT)
        assert program.wait(PATIENCE) == 3


def test_a_released_lease_does_not_end_the_process(server: Server) -> None:
    source = """
import leasehold, sys, time
client = leasehold.Client(sys.argv[1], holder="exit", session_ttl=1)
with client.lock("processes/no-exit", on_lost="exit"):
    pass
client.close()
time.sleep(1.5)
print("alive")
"""
    program = run_program(source, server.address)
    output, errors = program.communicate(timeout=PATIENCE)
    assert (output, program.returncode) == ("alive\n", 0), errors


def test_an_exit_with_a_held_lease_is_no_loss(server: Server) -> None:
    source = """
import leasehold, sys
client = leasehold.Client(sys.argv[1], holder="exit", session_ttl=600)
held = [client.lock("processes/exit-held", on_lost="exit").acquire(), client.lock("processes/exit-called", on_lost=print).acquire()]
"""
    program = run_program(source, server.address)
    output, errors = program.communicate(timeout=PATIENCE)
    assert (output, errors, program.returncode) == ("", "", 0)
    with Client(server.address, holder="next") as client, client.lock_all(["processes/exit-held", "processes/exit-called"], wait=30):
        pass


def test_a_fork_marks_leases_lost_and_the_child_acquires_its_own(server: Server) -> None:
    source = """
import leasehold, os, sys
client = leasehold.Client(sys.argv[1], holder="fork", session_ttl=5)
with client.lock("processes/fork", on_lost="ignore") as lease:
    child = os.fork()
    if child == 0:
        try:
            print(lease.state, lease.lost.is_set(), lease.remaining(), lease.loss.reason)
            try:
                lease.token
            except leasehold.LeaseLostError as error:
                print(error.reason)
            print(client.lock("processes/fork").try_acquire())
            with client.lock("processes/child") as own:
                print(own.state)
            lease.release()
            del lease
        finally:
            sys.stdout.flush()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    lease.check()
    print(lease.state)
"""
    program = run_program(source, server.address)
    output, errors = program.communicate(timeout=PATIENCE)
    assert output.splitlines() == ["lost True 0.0 fork", "fork", "None", "held", "held"], errors


def test_an_interrupt_ends_a_wait_and_withdraws_it(server: Server) -> None:
    source = """
import leasehold, sys
client = leasehold.Client(sys.argv[1], holder="interrupted")
print("waits")
try:
    client.lock("processes/interrupt", wait=600).acquire()
except KeyboardInterrupt:
    print("interrupted")
"""
    with Client(server.address, holder="a") as client, client.lock("processes/interrupt"):
        program = run_program(source, server.address)
        wait_until(lambda: bool(client.show("processes/interrupt").get("waiters")), "the program waits")
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=PATIENCE)
        assert output.splitlines() == ["waits", "interrupted"], errors
        wait_until(lambda: not client.show("processes/interrupt").get("waiters"), "the wait is withdrawn")


def test_the_exit_of_the_interpreter_releases_leases(server: Server) -> None:
    source = """
import ctypes, leasehold, sys
lease = leasehold.Client(sys.argv[1], holder="exiting", session_ttl=600).lock("processes/atexit").acquire()
# Never deleted, so that only the closing of its client releases it.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(lease))
"""
    program = run_program(source, server.address)
    assert program.wait(PATIENCE) == 0
    with Client(server.address, holder="next") as client, client.lock("processes/atexit"):
        pass


#: The exit takes a while after the interpreter began to end: `__del__` of a module's object runs then.
SLOW_EXIT = """
import time
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.3)
slow = Slow()
"""


def test_an_exit_while_threads_acquire_and_watch_aborts_nothing(server: Server) -> None:
    source = f"""
import leasehold, os, sys, threading
{SLOW_EXIT}
client = leasehold.Client(sys.argv[1], holder="exiting")
busy = f"processes/exit/{{os.getpid()}}"
held = client.lock(busy, on_lost=print).acquire()
def acquire(number):
    while True:
        try:
            client.lock(busy, wait=600).acquire()
        except leasehold.LeaseholdError:
            pass
for number in range(16):
    threading.Thread(target=acquire, args=(number,), daemon=True).start()
watched = client.lock(busy + "/watched", on_lost=lambda lease: time.sleep(600)).acquire()
time.sleep(0.5)
print("ends")
"""
    for _ in range(3):
        program = run_program(source, server.address)
        output, errors = program.communicate(timeout=PATIENCE)
        assert (output, errors, program.returncode) == ("ends\n", "", 0)


def test_an_exit_while_an_event_loop_waits_aborts_nothing(server: Server) -> None:
    source = f"""
import asyncio, leasehold, sys, threading
from leasehold import aio
{SLOW_EXIT}
client = aio.Client(sys.argv[1], holder="exiting")
async def main():
    async with client.lock("processes/exit-loop", on_lost="ignore"):
        await client.lock("processes/exit-loop", wait=600).acquire()
threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
time.sleep(0.5)
print("ends")
"""
    program = run_program(source, server.address)
    output, errors = program.communicate(timeout=PATIENCE)
    assert (output, errors, program.returncode) == ("ends\n", "", 0)


def test_an_event_loop_that_is_closed_with_pending_operations_disturbs_nothing(server: Server) -> None:
    source = """
import asyncio, gc, leasehold, sys
from leasehold import aio
client = aio.Client(sys.argv[1], holder="loops")
kept = []
async def start():
    kept.append(await client.lock("processes/loops", wait=30, on_lost=print).acquire())
    kept.append(asyncio.ensure_future(client.lock("processes/loops", wait=600).acquire()))
    kept.append(asyncio.ensure_future(client.lock("processes/free").acquire()))
    await asyncio.sleep(0)
async def use():
    async with client.lock("processes/other") as lease:
        return lease.state
for _ in range(3):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(start())
    # Nothing was canceled or awaited: completions arrive at a loop that does not exist any more.
    loop.close()
    del loop
    kept.clear()
    gc.collect()
    print(asyncio.run(use()))
    gc.collect()
asyncio.run(client.close())
"""
    program = run_program(source, server.address, PYTHONWARNINGS="ignore")
    output, errors = program.communicate(timeout=PATIENCE)
    assert (output, program.returncode) == ("held\n" * 3, 0), errors
    assert "panicked" not in errors and "Fatal" not in errors, errors


def test_threads_fork_while_others_acquire(server: Server) -> None:
    source = """
import leasehold, os, sys, threading, time
client = leasehold.Client(sys.argv[1], holder="forking")
held = client.lock("processes/fork-held", on_lost="ignore").acquire()
ended = threading.Event()
def acquire(number):
    while not ended.is_set():
        with client.lock(f"processes/fork-busy/{number}"):
            pass
def fork(number):
    for round in range(5):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with client.lock(f"processes/fork-child/{number}", wait=30) as own:
                    status = 0 if (own.state, held.state) == ("held", "lost") else 2
            finally:
                os._exit(status)
        statuses.append(os.waitpid(child, 0)[1])
statuses = []
busy = [threading.Thread(target=acquire, args=(number,)) for number in range(4)]
forks = [threading.Thread(target=fork, args=(number,)) for number in range(4)]
for thread in busy + forks:
    thread.start()
for thread in forks:
    thread.join()
ended.set()
for thread in busy:
    thread.join()
held.check()
print(statuses.count(0), held.state)
"""
    program = run_program(source, server.address)
    output, errors = program.communicate(timeout=PATIENCE)
    assert (output, program.returncode) == ("20 held\n", 0), errors


def test_thousands_of_threads_and_tasks_acquire_while_leases_stay_held(server: Server) -> None:
    source = """
import asyncio, ctypes, leasehold, sys, threading
from leasehold import aio
client = leasehold.Client(sys.argv[1], holder="storm", session_ttl=2)
held = client.lock("processes/storm-held", on_lost="ignore").acquire()
tokens = []
def acquire(number):
    with client.lock(f"processes/storm/{number % 50}", wait=50) as lease:
        tokens.append(lease.token_number)
threads = [threading.Thread(target=acquire, args=(number,)) for number in range(500)]
for thread in threads:
    thread.start()
async def tasks():
    async with aio.Client(sys.argv[1], holder="storm-aio") as other:
        async def one(number):
            async with other.lock(f"processes/storm/{number % 50}", wait=50) as lease:
                tokens.append(lease.token_number)
        await asyncio.gather(*(one(number) for number in range(2000)))
asyncio.run(tasks())
for thread in threads:
    thread.join()
held.check()
print(len(set(tokens)), held.state, held.lost.is_set())
"""
    program = run_program(source, server.address)
    output, errors = program.communicate(timeout=PATIENCE * 2)
    assert (output, program.returncode) == ("2500 held False\n", 0), errors


def test_a_server_that_is_gone_suspends_the_lease_at_its_deadline(own_server: Server) -> None:
    client = Client(own_server.address, holder="a", session_ttl=1)
    lease = client.lock("x", on_lost="ignore").acquire()
    stop(own_server.process)
    assert lease.lost.wait(PATIENCE)
    assert lease.state == "suspended"
    started = time.monotonic()
    client.close(timeout=1)
    assert time.monotonic() - started < 10


def test_a_stopped_worker_finds_out_that_it_lost_its_lease(server: Server) -> None:
    source = """
import leasehold, sys
client = leasehold.Client(sys.argv[1], holder="stopped", session_ttl=1)
try:
    with client.lock("processes/stopped") as lease:
        print("held")
        sys.stdin.readline()
        lease.raise_if_lost()
        print("not stopped")
except leasehold.LeaseLostError as error:
    print(error.code)
"""
    program = run_program(source, server.address)
    assert program.stdout is not None and program.stdin is not None
    assert program.stdout.readline() == "held\n"
    os.kill(program.pid, signal.SIGSTOP)
    with Client(server.address, holder="successor") as client, client.lock("processes/stopped", wait=PATIENCE):
        os.kill(program.pid, signal.SIGCONT)
        output, errors = program.communicate("\n", timeout=PATIENCE)
    assert output == "LEASE_LOST\n", errors
