"""Processes that the tests start: servers of Leasehold, and programs in Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


REPOSITORY = Path(__file__).resolve().parents[3]
BINARY = os.environ.get("LEASEHOLD_BIN", "leasehold")
#: Generous: other tests use the same cores.
PATIENCE = 60.0


def wait_until(condition: Callable[[], bool], message: str) -> None:
    """Waits for a condition, with a generous bound."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)


@dataclass
class Server:
    """A running server."""

    address: str
    process: subprocess.Popen[str]

    def command(self, *arguments: str) -> str:
        """Runs a command of the command line against this server."""
        environment = {**os.environ, "LEASEHOLD_ADDR": self.address}
        done = subprocess.run([BINARY, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout


def start_server(*arguments: str) -> Server:
    """Starts a server in memory and waits until it serves."""
    command = [BINARY, "serve", "--ephemeral", "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        found = re.search(r"serving on (\S+),", line)
        if found is not None:
            return Server(found.group(1), process)
    raise AssertionError("the server did not start:\n" + "".join(seen))


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def run_program(source: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Starts a Python program with this source."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
