"""Reads whether the admission policies exist that make a pod's retirement stamps believable.

Without them anyone who may patch `pods/status` or bind a pod could have written those stamps.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from controller.trust import Guards, missing_guards
from kube import paths
from kube.meta import ObjectMeta

if TYPE_CHECKING:
    from kube.client import ApiClient

REQUIRED_POLICIES = ("podstamp-pods", "podstamp-status", "podstamp-bindings")
"""The ValidatingAdmissionPolicies of manifests/base/policies.yaml, each with a binding."""


class Policy(msgspec.Struct, frozen=True):
    """A ValidatingAdmissionPolicy, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()


class BindingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a binding."""

    policy_name: str = ""
    validation_actions: tuple[str, ...] = ()


class Binding(msgspec.Struct, frozen=True):
    """A ValidatingAdmissionPolicyBinding, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BindingSpec = BindingSpec()


T = TypeVar("T", Policy, Binding)


async def read_guards(client: ApiClient) -> Guards:
    """Two lists, now; a KubeError if either fails."""
    policies, bindings = await asyncio.gather(
        _list(client, paths.policies(), Policy), _list(client, paths.policy_bindings(), Binding)
    )
    return missing_guards(
        REQUIRED_POLICIES,
        (policy.metadata.name for policy in policies),
        (b.spec.policy_name for b in bindings if "Deny" in b.spec.validation_actions),
    )


async def _list(client: ApiClient, path: str, kind: type[T]) -> list[T]:
    return [item async for page in client.list_pages(path, type=kind) for item in page.items]
