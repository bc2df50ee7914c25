"""Fixtures of the tests of stand-ins."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.apiserver import EmbeddedCluster
from tests.standins_tests.cluster import Admin, administered

# Nothing here speaks TLS, and reading the system's CAs takes longer than most of these tests.
PLAIN = False


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(verify=PLAIN, trust_env=False) as client:
        yield client


@pytest.fixture
async def admin(embedded: EmbeddedCluster) -> AsyncIterator[Admin]:
    async with administered(embedded) as admin:
        yield admin
