"""Plugin for pytest: the fixture ``leasehold_server``, a server in memory with a clock that the test moves."""

from __future__ import annotations

import pytest

from .testing import TestServer


@pytest.fixture
def leasehold_server() -> TestServer:
    """A server in memory, for one test."""
    return TestServer()
