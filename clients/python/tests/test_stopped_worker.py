"""The example worker, stopped past its ttl against real PostgreSQL: its late write is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from leasehold import Client
from leasehold.fence import psycopg as fence

from conftest import Postgres
from servers import PATIENCE, Server

WORKER = Path(__file__).resolve().parents[1] / "examples" / "fenced_postgres.py"


def test_the_late_write_of_a_stopped_worker_is_refused(server: Server, postgres: Postgres) -> None:
    code = [line for line in WORKER.read_text().splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 25, "the worker has at most 25 lines"
    command = [sys.executable, "-u", str(WORKER), server.address, postgres.url]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert worker.stdout is not None and worker.stdin is not None
    assert worker.stdout.readline() == "claimed\n", worker.communicate()[1]
    worker.stdin.write("17 1200\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "paid 17\n"
    worker.send_signal(signal.SIGSTOP)
    with Client(server.address, holder="successor") as client:
        with client.lock("jobs/settle", wait=PATIENCE) as lease, postgres.connect() as connection:
            fence.claim(connection, lease)
            worker.stdin.write("18 666\n")
            worker.stdin.flush()
            worker.send_signal(signal.SIGCONT)
            output, errors = worker.communicate(timeout=PATIENCE)
            assert (output, worker.returncode) == ("refused: STALE_TOKEN\n", 1), errors
            with fence.transaction(connection, lease) as cursor:
                cursor.execute("INSERT INTO paid VALUES (19, 900)")
            rows = connection.execute("SELECT id FROM paid WHERE id IN (17, 18, 19)").fetchall()
            assert sorted(row[0] for row in rows) == [17, 19]  # type: ignore[type-var]
