"""The policies that guard retirement stamps: those that are required are those that are shipped."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from controller.guards import REQUIRED_POLICIES, read_guards
from tests.clock import FakeClock
from tests.controller.fakeapi import POLICIES, FakeApi
from tests.e2e.installation import MANIFESTS

pytestmark = pytest.mark.anyio


def shipped(kind: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all((MANIFESTS / "base" / "policies.yaml").read_text())
    return [document for document in documents if document and document["kind"] == kind]


def test_what_is_required_is_what_the_manifests_bring() -> None:
    policies = {item["metadata"]["name"] for item in shipped("ValidatingAdmissionPolicy")}
    bindings = shipped("ValidatingAdmissionPolicyBinding")
    assert policies == set(REQUIRED_POLICIES) == set(POLICIES)
    assert {item["spec"]["policyName"] for item in bindings} == policies
    assert all("Deny" in item["spec"]["validationActions"] for item in bindings)


async def test_policies_with_their_bindings_leave_no_doubt(clock: FakeClock) -> None:
    api = FakeApi(clock)
    assert (await read_guards(api.client)).doubt is None


async def test_what_is_missing_is_named(clock: FakeClock) -> None:
    api = FakeApi(clock)
    api.remove_policy("podstamp-bindings")
    api.add_policy("podstamp-pods", actions=("Audit",))
    doubt = (await read_guards(api.client)).doubt
    assert doubt is not None
    assert "policy podstamp-bindings" in doubt
    assert "a binding of policy podstamp-pods that denies" in doubt
