"""Raw calls to an embedded server of the test's own."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import httpx
import pytest

from tests.apiserver import EmbeddedCluster
from tests.contract.api import Api


@pytest.fixture
def api(embedded: EmbeddedCluster) -> Iterator[Api]:
    context = ssl.create_default_context(cadata=embedded.ca_pem)
    headers = {"Authorization": f"Bearer {embedded.token}"}
    with httpx.Client(base_url=embedded.url, verify=context, headers=headers) as client:
        yield Api(client)
