"""Holds a lock while it works. Run it twice: the second one waits."""

import sys
import time

from leasehold import Client

client = Client(sys.argv[1] if len(sys.argv) > 1 else None, holder="example")
with client.lock("examples/report", wait=60) as lease:
    for page in range(3):
        lease.raise_if_lost()
        print(f"page {page} under token {lease.token_number}, {lease.remaining():.0f} s left")
        time.sleep(0.1)
