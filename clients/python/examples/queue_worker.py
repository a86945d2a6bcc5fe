"""Sends three messages and works on them. A message that fails is delivered again, at most five times."""

import sys

from leasehold import Client

client = Client(sys.argv[1] if len(sys.argv) > 1 else None, holder="example")
queue = client.queue("examples/jobs", visibility="30s")
for number in range(3):
    queue.send(f"job {number}")
while (message := queue.recv(timeout=1)) is not None:
    with message:
        print(f"{message.body.decode()}, attempt {message.attempt}")
