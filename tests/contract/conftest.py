"""What the contract tests share: raw calls to the server under test, and own namespaces."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.cluster import Cluster
from tests.contract.api import Api


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[Api]:
    """The administrator's calls."""
    context = ssl.create_default_context(cadata=cluster.ca_pem)
    headers = {"Authorization": f"Bearer {cluster.token}", "Accept-Encoding": "identity"}
    with httpx.Client(base_url=cluster.url, verify=context, headers=headers) as client:
        yield Api(client)


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace of the test's own in which pods can be created at once."""
    name = f"contract-{uuid.uuid4().hex[:10]}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = {"metadata": {"name": "default"}}
    made = api.post(f"/api/v1/namespaces/{name}/serviceaccounts", account)
    assert made.status_code in (201, 409), made.text
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def pods(namespace: str) -> str:
    """The path of the pods in the test's namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"
