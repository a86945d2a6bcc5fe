"""Real servers as fixtures: Leasehold, PostgreSQL and Redis, each on a free port or socket in a temporary directory."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import redis
from servers import REPOSITORY, Server, start_server, stop, wait_until


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server for all tests. They use resources of their own."""
    started = start_server()
    yield started
    stop(started.process)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server for one test, which may stop it."""
    started = start_server()
    yield started
    stop(started.process)


@dataclass
class Postgres:
    """A running PostgreSQL."""

    url: str

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url, autocommit=True)


def _postgres_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    assert found, "PostgreSQL's server is not installed (Debian: postgresql)"
    return found[-1].parent


@pytest.fixture(scope="session")
def postgres(server: Server) -> Iterator[Postgres]:
    """PostgreSQL with the fence installed, and the table ``paid``, which is protected for ``jobs/settle``."""
    directory = Path(tempfile.mkdtemp(prefix="leasehold-pg-"))
    user: list[str] = []
    if os.geteuid() == 0:
        # PostgreSQL refuses root.
        account = pwd.getpwnam("postgres")
        os.chown(directory, account.pw_uid, account.pw_gid)
        user = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    programs = _postgres_programs()
    initdb = [*user, str(programs / "initdb"), "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C"]
    initdb += ["--username=leasehold", "-D", str(directory / "data")]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/")
    command = [*user, str(programs / "postgres"), "-D", str(directory / "data"), "-k", str(directory)]
    command += ["-c", "listen_addresses=", "-c", "max_connections=40", "-c", "shared_buffers=16MB"]
    with open(directory / "log", "w") as log:
        process = subprocess.Popen(command, stderr=log, text=True, cwd="/")
    running = Postgres(f"postgresql:///postgres?host={directory}&user=leasehold")

    def ready() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        try:
            running.connect().close()
            return True
        except psycopg.OperationalError:
            return False

    wait_until(ready, "PostgreSQL did not start")
    install = REPOSITORY / "crates/fence/src/postgres/install.sql"
    subprocess.run(
        ["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(install), running.url],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    status = server.command("status", "--json")
    cluster = re.search(r'"cluster":\s*"([0-9a-f]{16})"', status)
    assert cluster is not None, status
    with running.connect() as connection:
        connection.execute("CREATE TABLE paid (id int, cents int)")
        connection.execute("SELECT leasehold.arm('jobs/settle', %s)", (cluster.group(1),))
        connection.execute("SELECT leasehold.protect('paid', 'jobs/settle')")
    yield running
    process.send_signal(signal.SIGQUIT)
    process.wait()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_url(server: Server) -> Iterator[str]:
    """Redis with the fence of ``jobs/settle``, on a unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="leasehold-redis-"))
    socket = directory / "redis.sock"
    with _free_port() as port:
        pass
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(socket), "--save", ""]
    process = subprocess.Popen([*command, "--dir", str(directory)], stdout=subprocess.DEVNULL, text=True)
    url = f"redis://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, "redis-server ended"
        try:
            return bool(redis.Redis.from_url(url).ping())
        except redis.ConnectionError:
            return False

    wait_until(ready, "Redis did not start")
    server.command("fence", "arm", url, "--resource", "jobs/settle")
    yield url
    stop(process)
    shutil.rmtree(directory, ignore_errors=True)


class _free_port:
    """A port that was free a moment ago."""

    def __enter__(self) -> int:
        import socket

        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        port: int = self._socket.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._socket.close()
