"""Connection strings of PostgreSQL whose connections present the token to protected tables, through libpq's ``options``.

It works with every driver of libpq, through pools, and after ``DISCARD ALL``. Not with PgBouncer in transaction mode.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import parse_qsl, quote

from .held import HeldLease

_OPTIONS = re.compile(r"(?:^|\s)options\s*=\s*('(?:[^'\\]|\\.)*'|[^\s']+)")


def options(leases: Sequence[HeldLease]) -> str:
    """Value of libpq's ``options``, for example for ``OPTIONS`` of Django or ``connect_args`` of SQLAlchemy."""
    # A space in a value is escaped with a backslash.
    return "-c leasehold.token=" + "\\ ".join(lease.token for lease in leases)


def conninfo(url: str, leases: Sequence[HeldLease]) -> str:
    """Adds the tokens to a URL (``postgresql://…``) or to a text of ``key=value`` pairs. Other options are kept."""
    added = options(leases)
    if "://" in url:
        address, _, text = url.partition("?")
        query = parse_qsl(text, keep_blank_values=True)
        earlier = [value for key, value in query if key == "options"]
        query = [pair for pair in query if pair[0] != "options"]
        query.append(("options", " ".join([*earlier, added])))
        # libpq does not read "+" as a space.
        text = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query)
        return f"{address}?{text}"
    found = _OPTIONS.search(url)
    earlier_text = ""
    if found is not None:
        value = found.group(1)
        earlier_text = re.sub(r"\\(.)", r"\1", value[1:-1] if value.startswith("'") else value) + " "
        url = url[: found.start()] + url[found.end() :]
    escaped = (earlier_text + added).replace("\\", "\\\\").replace("'", "\\'")
    return f"{url} options='{escaped}'".strip()
