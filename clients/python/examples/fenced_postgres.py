"""A worker whose late writes PostgreSQL refuses: it reads payments from standard input and writes them under its lease."""

import sys

import psycopg

from leasehold import Client, StaleTokenError
from leasehold.fence.psycopg import claim, transaction

client = Client(sys.argv[1], holder="worker-1", session_ttl=2)
with client.lock("jobs/settle", wait=60, on_lost="ignore") as lease, psycopg.connect(sys.argv[2]) as db:
    claim(db, lease)
    print("claimed")
    for line in sys.stdin:
        number, cents = line.split()
        try:
            with transaction(db, lease) as cursor:
                cursor.execute("INSERT INTO paid VALUES (%s, %s)", (number, cents))
            print("paid", number)
        except StaleTokenError as error:
            sys.exit(print("refused:", error.code) or 1)
