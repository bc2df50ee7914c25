"""The server under test answers random writes, and tells of them, as the embedded one does."""

from __future__ import annotations

import random
import ssl
import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.apiserver import EmbeddedCluster
from tests.contract.api import Api, ok, pod
from tests.contract.random_writes import Site, comparable, draw

STEPS = 60
LAST = "last"
SELECTIONS: tuple[dict[str, str], ...] = (
    {},
    {"labelSelector": "k=v"},
    {"fieldSelector": "status.phase!=Failed"},
    {"fieldSelector": "spec.nodeName=n1"},
)


@pytest.fixture(scope="module")
def twin() -> Iterator[Api]:
    """An embedded server to compare with."""
    with EmbeddedCluster() as cluster:
        context = ssl.create_default_context(cadata=cluster.ca_pem)
        headers = {"Authorization": f"Bearer {cluster.token}"}
        with httpx.Client(base_url=cluster.url, verify=context, headers=headers) as client:
            yield Api(client)


def _site(api: Api, namespace: str) -> Site:
    """A new namespace of this name on one server."""
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    account = {"metadata": {"name": "default"}}
    api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    return Site(api, f"/api/v1/namespaces/{namespace}/pods")


def _told(site: Site, version: str, selection: dict[str, str], namespace: str) -> list[object]:
    """Every event up to that of the last pod."""
    seen: list[object] = []
    with site.api.watch(site.path, resourceVersion=version, **selection) as events:
        for event in events:
            seen.append(comparable(event, namespace))
            if event["object"]["metadata"]["name"] == LAST:
                return seen
    raise AssertionError(f"the watch ended before {LAST}: {seen[-3:]}")


@pytest.mark.parametrize("seed", [3, 19, 22])
def test_random_writes_are_answered_alike(api: Api, twin: Api, seed: int) -> None:
    rng = random.Random(seed)
    namespace = f"contract-{uuid.uuid4().hex[:10]}"
    sites = [_site(api, namespace), _site(twin, namespace)]
    versions = [site.api.read(site.path)["metadata"]["resourceVersion"] for site in sites]
    said: list[str] = []
    for _ in range(STEPS):
        step = draw(rng)
        said.append(step.said)
        here, there = (step.send(site) for site in sites)
        answers = [
            (
                answer.status_code,
                answer.headers.get("warning"),
                comparable(answer.json(), namespace),
            )
            for answer in (here, there)
        ]
        assert answers[0] == answers[1], said[-5:]
    for site in sites:
        site.api.create(site.path, pod(LAST, node="n1", labels={"k": "v"}))
    for selection in SELECTIONS:
        here_told, there_told = (
            _told(site, version, selection, namespace)
            for site, version in zip(sites, versions, strict=True)
        )
        assert here_told == there_told, selection
    for site in sites:
        for item in site.api.read(site.path)["items"]:
            path = f"{site.path}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):
                site.api.change(path, {"metadata": {"finalizers": None}})
            site.api.delete(path, gracePeriodSeconds=0)
        ok(site.api.delete(f"/api/v1/namespaces/{namespace}"))
