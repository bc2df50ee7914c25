"""The one fresh read that decides a suspicion."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from kube.client import ApiClient
from kube.credentials import load_credentials
from kube.pod import Pod
from kube.store import Store
from tests.apiserver import EmbeddedCluster
from tests.webhook.builders import OWNER_UID, STORED, Object, changed, owner
from tests.webhook.rows import HOLDER, IN_SET
from tests.webhook.site import Site, open_site, pods
from webhook.case import Suspicion
from webhook.conflicts import Confirmer, PodView
from webhook.judge import Verdict
from webhook.metrics import Tally
from webhook.stamps import PODSET_INDEX

pytestmark = pytest.mark.anyio

ALLOWED = Verdict(True, "create", warnings=["first"])


@pytest.fixture
def site(embedded: EmbeddedCluster) -> Iterator[Site]:
    with open_site(embedded) as opened:
        yield opened


@pytest.fixture
async def client(embedded: EmbeddedCluster) -> AsyncIterator[ApiClient]:
    async with ApiClient(load_credentials(embedded.kubeconfig)) as opened:
        yield opened


def suspect(site: Site, stored: Object = HOLDER, *, phase: str = "Running") -> Suspicion:
    namespace = site.namespace()
    created = site.must("POST", pods(namespace), stored)
    name = created["metadata"]["name"]
    site.must("PATCH", pods(namespace, name, "/status"), {"status": {"phase": phase}})
    return Suspicion(namespace, name, created["metadata"]["uid"], OWNER_UID, "3", "ps")


async def test_a_holder_that_is_there_refuses(site: Site, client: ApiClient) -> None:
    tally = Tally()
    suspicion = suspect(site)
    verdict = await Confirmer(client, tally).decide(ALLOWED, suspicion, 5)
    assert (verdict.allowed, verdict.code, verdict.reason) == (False, 409, "Conflict")
    assert verdict.rule == "index-conflict"
    assert "index 3" in verdict.message
    assert f"{suspicion.namespace}/ps-other-3" in verdict.message
    assert STORED in verdict.message
    assert verdict.warnings == ["first"]
    assert tally.confirmations == {"held": 1}


@pytest.mark.parametrize("kind", ["gone", "successor", "failed", "other-index", "other-owner"])
async def test_a_holder_that_is_not_what_it_was_allows(
    site: Site, client: ApiClient, kind: str
) -> None:
    stored = HOLDER
    if kind == "other-index":
        stored = changed(HOLDER, labels={PODSET_INDEX: "4"})
    if kind == "other-owner":
        stored = changed(HOLDER, ownerReferences=[owner(uid="another")])
    suspicion = suspect(site, stored, phase="Failed" if kind == "failed" else "Running")
    if kind == "gone":
        site.must("DELETE", pods(suspicion.namespace, suspicion.name))
    if kind == "successor":
        suspicion = suspicion._replace(uid="its-predecessor")
    tally = Tally()
    verdict = await Confirmer(client, tally).decide(ALLOWED, suspicion, 5)
    assert verdict.allowed
    assert verdict.suspicion is None
    assert [verdict.warnings[0], "ps-other-3" in verdict.warnings[1]] == ["first", True]
    assert tally.confirmations == {"free": 1}


async def test_an_error_of_the_server_allows(
    embedded: EmbeddedCluster, site: Site, client: ApiClient
) -> None:
    suspicion = suspect(site)
    embedded.faults.fail(403, verb="get", path="ps-other-3")
    tally = Tally()
    verdict = await Confirmer(client, tally).decide(ALLOWED, suspicion, 5)
    assert verdict.allowed
    assert "could not be confirmed" in verdict.warnings[1]
    assert tally.confirmations == {"unknown": 1}


@pytest.mark.parametrize("budget_s", [0.1, -1.0])
async def test_no_answer_within_the_deadline_allows(
    embedded: EmbeddedCluster, site: Site, client: ApiClient, budget_s: float
) -> None:
    suspicion = suspect(site)
    embedded.faults.hang(verb="get", path="ps-other-3")
    begun = time.monotonic()
    verdict = await Confirmer(client, Tally()).decide(ALLOWED, suspicion, budget_s)
    assert time.monotonic() - begun < 8
    assert verdict.allowed
    assert "could not be confirmed" in verdict.warnings[1]


def test_the_view_finds_pods_by_place_and_by_name() -> None:
    store: Store[Pod] = Store()
    view = PodView(store)
    before = view.synced
    pods_there = []
    for at, (name, namespace, labels) in enumerate(
        [("a", "x", IN_SET), ("b", "x", IN_SET), ("c", "y", IN_SET), ("d", "x", {})]
    ):
        metadata = {"name": name, "namespace": namespace, "uid": str(at), "labels": labels}
        pods_there.append({"metadata": metadata | {"ownerReferences": [owner()]}})
    store.replace(msgspec.convert(pods_there, list[Pod]))
    assert (before, view.synced) == (False, True)
    found = view.at_index("x", OWNER_UID, "3")
    assert sorted(pod.metadata.name for pod in found) == ["a", "b"]
    assert list(view.at_index("x", OWNER_UID, "4")) == []
    assert list(view.at_index("x", "another", "3")) == []
    holder = view.holder("y", "c")
    assert holder is not None
    assert holder.metadata.uid == "2"
    assert view.holder("x", "c") is None
