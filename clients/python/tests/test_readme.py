"""The snippet of the repository's README. `crates/cli/tests/readme.rs` compares it with this file."""

from __future__ import annotations

import psycopg

from leasehold import Client
from leasehold.fence.psycopg import claim, transaction

from conftest import Postgres
from servers import Server


def test_the_snippet_of_the_readme_writes_under_its_lease(server: Server, postgres: Postgres) -> None:
    url = postgres.url
    client = Client(server.address)
    with client.lock("jobs/settle", wait=60) as lease, psycopg.connect(url) as db:
        claim(db, lease)  # before anything is read
        with transaction(db, lease) as cursor:  # check and write are one step
            cursor.execute("INSERT INTO paid VALUES (7, 1200)")
    with postgres.connect() as reader:
        assert reader.execute("SELECT 1 FROM paid WHERE (id, cents) = (7, 1200)").fetchone() == (1,)
