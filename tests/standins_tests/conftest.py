"""Fixtures of the tests of stand-ins."""

from collections.abc import AsyncIterator

import httpx
import pytest

# Nothing here speaks TLS, and reading the system's CAs takes longer than most of these tests.
PLAIN = False


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(verify=PLAIN, trust_env=False) as client:
        yield client
