"""What is stored about a router, and which entries are ours by it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.routers.ownership import Claim, Ownership
from controller.routers.record import Record
from kube import paths
from kube.client import ApiClient
from kube.credentials import load_credentials
from kube.errors import Conflict, KubeError
from tests.apiserver import EmbeddedCluster

pytestmark = pytest.mark.anyio

NS = "default"
A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def client(embedded: EmbeddedCluster) -> AsyncIterator[ApiClient]:
    async with ApiClient(load_credentials(embedded.kubeconfig), timeout_s=2.0) as made:
        yield made


async def stored(client: ApiClient) -> dict[str, Any]:
    found = await client.get(paths.configmap(NS, "podstamp-router-chat"))
    return dict(found["data"])


async def owner(client: ApiClient) -> Ownership:
    made = Ownership(Record(client, NS, "chat"))
    await made.load()
    return made


def claim(uid: str, after_s: float = 0.0) -> Claim:
    return Claim(uid, f"inc-{uid}", AT + timedelta(seconds=after_s))


async def test_claims_outlive_the_controller(client: ApiClient) -> None:
    first = await owner(client)
    assert first.claims == {}
    await first.claim({A: claim("a"), B: claim("b")}, renew_after_s=60)
    again = await owner(client)
    assert again.claims == {A: claim("a"), B: claim("b")}
    assert json.loads((await stored(client))["workers"])[A][:2] == ["a", "inc-a"]


async def test_a_claim_that_is_there_costs_no_call(
    client: ApiClient, embedded: EmbeddedCluster
) -> None:
    made = await owner(client)
    await made.claim({A: claim("a")}, renew_after_s=60)
    calls = len(embedded.requests())
    await made.claim({A: claim("a", 59)}, renew_after_s=60)
    assert len(embedded.requests()) == calls
    await made.claim({A: claim("a", 61)}, renew_after_s=60)
    assert made.claims[A].at == AT + timedelta(seconds=61)
    await made.claim({A: claim("successor", 62)}, renew_after_s=60)
    assert made.claims[A].uid == "successor"


async def test_two_controllers_never_overwrite_each_others_claims(client: ApiClient) -> None:
    one, two = await owner(client), await owner(client)
    await one.claim({A: claim("a")}, renew_after_s=60)
    await two.claim({B: claim("b")}, renew_after_s=60)
    assert set((await owner(client)).claims) == {A, B}
    await one.release({A: claim("a")})
    assert set((await owner(client)).claims) == {B}


async def test_a_claim_that_has_a_new_owner_is_not_released_for_the_old_one(
    client: ApiClient,
) -> None:
    one, two = await owner(client), await owner(client)
    await one.claim({A: claim("old")}, renew_after_s=60)
    await two.load()
    await two.claim({A: claim("new")}, renew_after_s=60)
    await one.release({A: claim("old")})
    assert (await owner(client)).claims == {A: claim("new")}


async def test_a_conflict_that_never_ends_is_an_error(
    client: ApiClient, embedded: EmbeddedCluster
) -> None:
    made = await owner(client)
    fault = embedded.faults.fail(409, verb="create", path="configmaps", times=None)
    with pytest.raises(Conflict):
        await made.claim({A: claim("a")}, renew_after_s=60)
    assert fault.hits == 5
    assert made.claims == {}


async def test_what_could_not_be_written_is_not_claimed(
    client: ApiClient, embedded: EmbeddedCluster
) -> None:
    made = await owner(client)
    embedded.faults.fail(500, verb="create", path="configmaps", times=None)
    with pytest.raises(KubeError):
        await made.claim({A: claim("a")}, renew_after_s=60)
    assert made.claims == {}


async def test_a_record_that_was_deleted_is_made_again(client: ApiClient) -> None:
    made = await owner(client)
    await made.claim({A: claim("a")}, renew_after_s=60)
    await client.delete(paths.configmap(NS, "podstamp-router-chat"))
    await made.claim({B: claim("b")}, renew_after_s=60)
    assert set(json.loads((await stored(client))["workers"])) == {B}


async def test_keys_of_others_in_the_record_stay(client: ApiClient) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "podstamp-router-chat", "namespace": NS},
        "data": {"sequence": "7"},
    }
    await client.create(paths.configmaps(NS), body)
    made = await owner(client)
    await made.claim({A: claim("a")}, renew_after_s=60)
    assert (await stored(client))["sequence"] == "7"


@pytest.mark.parametrize(
    "text", ['{"half', '{"http://a": ["uid", "incarnation", "2026-01-01T00:00:00"]}', "[]"]
)
async def test_a_record_that_cannot_be_read_claims_nothing(client: ApiClient, text: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "podstamp-router-chat", "namespace": NS},
        "data": {"workers": text},
    }
    await client.create(paths.configmaps(NS), body)
    assert (await owner(client)).claims == {}
