"""Fences: the target of a write refuses a token that is older than one it has seen.

| module | target |
|---|---|
| ``psycopg`` | PostgreSQL, with psycopg 3 |
| ``sqlalchemy`` | PostgreSQL, with SQLAlchemy |
| ``django`` | PostgreSQL, with Django |
| ``conninfo`` | PostgreSQL, with any driver of libpq: the connection presents the token |
| ``redis`` | Redis, with redis-py |
| ``sqlite`` | SQLite, with the standard library |
| ``http`` | sends the token with HTTP requests |
| ``asgi``, ``wsgi`` | refuse HTTP requests with a stale token before they reach an application |

``leasehold fence arm`` prepares a target.
"""
