"""Leads until it is stopped. A second one takes over at once when the first one ends."""

import sys

from leasehold import Client, LeaseLostError

client = Client(sys.argv[1] if len(sys.argv) > 1 else None, holder="example")
election = client.election("examples/leader", ttl=10, metadata="10.0.0.1:8080")
try:
    with election as lease:
        leader = election.leader()
        print(f"leader is {leader.holder if leader else None}, token {lease.token_number}")
        if "--stay" in sys.argv:
            lease.lost.wait()
except LeaseLostError as loss:
    print(f"not the leader any more: {loss.reason}")
