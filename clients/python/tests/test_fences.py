"""Fences: a stale token is refused by PostgreSQL, Redis, SQLite and HTTP applications, through each library."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
import psycopg
import pytest
import redis
import redis.asyncio
import sqlalchemy
from django.conf import settings
from sqlalchemy.orm import Session

import leasehold
from leasehold import Client, Lease, aio
from leasehold.fence import asgi, conninfo, http, wsgi
from leasehold.fence import psycopg as psycopg_fence
from leasehold.fence import redis as redis_fence
from leasehold.fence import sqlalchemy as sqlalchemy_fence
from leasehold.fence import sqlite as sqlite_fence

from conftest import Postgres
from servers import PATIENCE, Server

RESOURCE = "jobs/settle"


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address, holder="worker") as connected:
        yield connected


def acquire(client: Client) -> Lease:
    return client.lock(RESOURCE, wait=PATIENCE, on_lost="ignore").acquire()


def two_holders(client: Client) -> tuple[Lease, Lease]:
    """A former holder, and its successor."""
    former = acquire(client)
    token = former.token
    former.release()

    class Former:
        resource, slot = RESOURCE, 0

        def __init__(self) -> None:
            self.token = token

        def remaining(self) -> float:
            return 10.0

    return Former(), acquire(client)  # type: ignore[return-value]


def test_psycopg_admits_the_holder_and_refuses_its_predecessor(client: Client, postgres: Postgres) -> None:
    former, lease = two_holders(client)
    with postgres.connect() as connection:
        psycopg_fence.claim(connection, lease)
        with psycopg_fence.transaction(connection, lease) as cursor:
            cursor.execute("INSERT INTO paid VALUES (1, 100)")
        with pytest.raises(leasehold.StaleTokenError) as refused:
            with psycopg_fence.transaction(connection, former) as cursor:
                cursor.execute("INSERT INTO paid VALUES (1, 666)")
        assert refused.value.mark == str(lease.token_number)
        with pytest.raises(leasehold.InvalidArgumentError):
            with psycopg_fence.refusals():
                connection.execute("INSERT INTO paid VALUES (1, 667)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            with psycopg_fence.transaction(connection, lease) as cursor:
                cursor.execute("SELECT 1 / 0")
        rows = connection.execute("SELECT cents FROM paid WHERE id = 1").fetchall()
        assert rows == [(100,)]
    lease.release()


def test_psycopg_with_asyncio(client: Client, postgres: Postgres) -> None:
    former, lease = two_holders(client)

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
            await psycopg_fence.aclaim(connection, lease)
            async with psycopg_fence.atransaction(connection, lease) as cursor:
                await cursor.execute("INSERT INTO paid VALUES (2, 100)")
            with pytest.raises(leasehold.StaleTokenError):
                async with psycopg_fence.atransaction(connection, former):
                    pass

    asyncio.run(main())
    lease.release()


def test_sqlalchemy_presents_the_token_in_every_transaction(client: Client, postgres: Postgres) -> None:
    former, lease = two_holders(client)
    engine = sqlalchemy.create_engine(postgres.url.replace("postgresql://", "postgresql+psycopg://"))
    sqlalchemy_fence.claim(engine, lease)
    insert = sqlalchemy.text("INSERT INTO paid VALUES (3, :cents)")
    with sqlalchemy_fence.fence(engine, lease):
        with engine.begin() as connection:
            connection.execute(insert, {"cents": 100})
        with Session(engine) as session, session.begin():
            session.execute(insert, {"cents": 200})
    with pytest.raises(leasehold.StaleTokenError):
        with sqlalchemy_fence.fence(engine, former), engine.begin() as connection:
            connection.execute(insert, {"cents": 666})
    with pytest.raises(sqlalchemy.exc.DBAPIError):
        with engine.begin() as connection:
            connection.execute(insert, {"cents": 667})
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT cents FROM paid WHERE id = 3 ORDER BY cents")).fetchall()
        assert [row[0] for row in rows] == [100, 200]
    engine.dispose()
    lease.release()


def test_django_presents_the_token_in_an_atomic_block(client: Client, postgres: Postgres) -> None:
    directory = postgres.url.partition("host=")[2].partition("&")[0]
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "postgres",
                "USER": "leasehold",
                "HOST": directory,
            }
        }
    )
    django.setup()
    from django.db import Error, connection
    from leasehold.fence.django import claim, database_options, fenced

    former, lease = two_holders(client)
    claim(lease)
    with fenced(lease), connection.cursor() as cursor:
        cursor.execute("INSERT INTO paid VALUES (4, 100)")
    with pytest.raises(leasehold.StaleTokenError):
        with fenced(former), connection.cursor() as cursor:
            cursor.execute("INSERT INTO paid VALUES (4, 666)")
    with pytest.raises(Error), connection.cursor() as cursor:
        cursor.execute("INSERT INTO paid VALUES (4, 667)")
    with connection.cursor() as cursor:
        cursor.execute("SELECT cents FROM paid WHERE id = 4")
        assert cursor.fetchall() == [(100,)]
    assert database_options(lease)["options"] == f"-c leasehold.token={lease.token}"
    connection.close()
    lease.release()


def test_a_connection_string_carries_the_tokens(client: Client, postgres: Postgres) -> None:
    with client.lock("fences/one") as one, client.lock("fences/two") as two:
        for url in (
            postgres.url,
            postgres.url + "&options=-c%20work_mem%3D1234kB",
            postgres.url.replace("postgresql:///postgres?", "dbname=postgres ").replace("&", " "),
            postgres.url.replace("postgresql:///postgres?", "dbname=postgres ").replace("&", " ")
            + " options='-c work_mem=1234kB'",
        ):
            with psycopg.connect(conninfo.conninfo(url, [one, two])) as connection:
                row = connection.execute("SELECT current_setting('leasehold.token')").fetchone()
                assert row == (f"{one.token} {two.token}",)
                if "work_mem" in url:
                    assert connection.execute("SHOW work_mem").fetchone() == ("1234kB",)
        with psycopg.connect(one.conninfo(postgres.url)) as connection:
            assert connection.execute("SELECT current_setting('leasehold.token')").fetchone() == (one.token,)


def test_redis_executes_commands_of_the_holder_only(client: Client, redis_url: str) -> None:
    former, lease = two_holders(client)
    database, key = redis.Redis.from_url(redis_url, decode_responses=True), "{jobs/settle}:paid:7"
    redis_fence.claim(database, lease)
    redis_fence.write(database, lease, [key], "SET", key, 1200)
    with pytest.raises(leasehold.StaleTokenError) as refused:
        redis_fence.write(database, former, [key], "SET", key, 666)
    assert refused.value.presented and refused.value.mark
    with pytest.raises(leasehold.InvalidArgumentError):
        redis_fence.write(database, lease, [key])
    with pytest.raises(redis.ResponseError):
        redis_fence.write(database, lease, [key], "LPUSH", key, 1)
    assert database.get(key) == "1200"

    async def main() -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as asynchronous:
            await redis_fence.aclaim(asynchronous, lease)
            await redis_fence.awrite(asynchronous, lease, [key], "INCR", key)
            with pytest.raises(leasehold.StaleTokenError):
                await redis_fence.aclaim(asynchronous, former)

    asyncio.run(main())
    assert database.get(key) == "1201"
    lease.release()


def test_sqlite_commits_transactions_of_the_holder_only(client: Client, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as setup:
        setup.execute("CREATE TABLE paid (id INTEGER, cents INTEGER)")
    server.command("fence", "arm", f"sqlite:{path}", "--resource", RESOURCE)
    server.command("fence", "protect", f"sqlite:{path}", "--table", "paid", "--resource", RESOURCE)
    former, lease = two_holders(client)
    database = sqlite3.connect(path)
    sqlite_fence.claim(database, lease)
    with sqlite_fence.transaction(database, lease):
        database.execute("INSERT INTO paid VALUES (7, 1200)")
    with pytest.raises(leasehold.StaleTokenError):
        with sqlite_fence.transaction(database, former):
            database.execute("INSERT INTO paid VALUES (7, 666)")
    with pytest.raises(sqlite3.Error):
        database.execute("INSERT INTO paid VALUES (7, 667)")
    database.rollback()
    with pytest.raises(ZeroDivisionError):
        with sqlite_fence.transaction(database, lease):
            database.execute("INSERT INTO paid VALUES (7, 668)")
            raise ZeroDivisionError
    assert database.execute("SELECT cents FROM paid").fetchall() == [(1200,)]
    lease.release()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_wsgi_application_receives_requests_of_the_holder_only(client: Client, tmp_path: Path) -> None:
    received: list[bytes] = []

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        received.append(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"done"]

    fenced = wsgi.FenceMiddleware(
        application, marks=tmp_path / "settle.mark", resource=RESOURCE, cluster=client.cluster_id(), arm=True
    )
    service = make_server("127.0.0.1", 0, fenced, handler_class=_Quiet)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{service.server_port}"
    former, lease = two_holders(client)
    with http.urlopen(lease, url + "/-/claim", b"") as response:
        assert response.status == 204
    with http.urlopen(lease, url + "/invoices", b"7") as response:
        assert (response.status, response.read()) == (200, b"done")
    with pytest.raises(leasehold.StaleTokenError) as refused:
        http.urlopen(former, url + "/invoices", b"666")
    assert refused.value.mark == str(lease.token_number)
    with client.lock("fences/other") as other, pytest.raises(leasehold.InvalidArgumentError):
        http.urlopen(other, url + "/invoices", b"667")
    assert received == [b"7"]
    # The mark survives a restart, and a lost mark refuses everything.
    again = wsgi.FenceMiddleware(
        application, marks=tmp_path / "settle.mark", resource=RESOURCE, cluster=client.cluster_id()
    )
    assert _status(again, former.token) == "412 Refused"
    assert _status(again, lease.token) == "200 OK"
    assert _status(again, "") == "400 Refused"
    (tmp_path / "settle.mark").unlink()
    assert _status(again, lease.token) == "500 Refused"
    service.shutdown()
    lease.release()


def _status(application: wsgi.FenceMiddleware, token: str) -> str:
    statuses: list[str] = []

    class Empty:
        def read(self, size: int = -1) -> bytes:
            return b""

    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_LEASE_TOKEN": token}
    environ["wsgi.input"] = Empty()
    response = application(environ, lambda status, headers, exc_info=None: statuses.append(status))  # type: ignore[arg-type]
    list(response)
    close = getattr(response, "close", None)
    if close is not None:
        close()
    return statuses[0]


def test_an_asgi_claim_waits_for_requests_in_flight(client: Client, tmp_path: Path) -> None:
    former, lease = two_holders(client)

    async def main() -> None:
        started, finish = asyncio.Event(), asyncio.Event()
        order: list[str] = []

        async def application(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            if scope["path"] == "/slow":
                started.set()
                await finish.wait()
                order.append("slow")
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        cluster = await asyncio.to_thread(client.cluster_id)
        fenced = asgi.FenceMiddleware(
            application, marks=tmp_path / "settle.mark", resource=RESOURCE, cluster=cluster, arm=True
        )

        async def request(token: str, path: str, method: str = "POST") -> int:
            statuses: list[int] = []

            async def receive() -> MutableMapping[str, Any]:
                return {"type": "http.request", "body": b""}

            async def send(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])

            headers = [(b"lease-token", token.encode())] if token else []
            await fenced({"type": "http", "method": method, "path": path, "headers": headers}, receive, send)
            return statuses[0]

        slow = asyncio.create_task(request(former.token, "/slow"))
        await started.wait()
        claim = asyncio.create_task(request(lease.token, "/-/claim"))
        # The predecessor's request is in flight, so the claim waits.
        await asyncio.sleep(0.2)
        assert not claim.done()
        finish.set()
        assert (await slow, await claim) == (200, 204)
        assert order == ["slow"]
        assert await request(former.token, "/") == 412
        assert await request("", "/") == 400
        assert await request("", "/", "GET") == 200
        assert await request(lease.token, "/") == 200

    asyncio.run(main())
    lease.release()
