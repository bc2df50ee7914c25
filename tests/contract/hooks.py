"""A webhook and its configuration, for contract tests of admission on either server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.apiserver_unit.admission.hook import Hook
from tests.contract.api import Api, Object, configmap, until
from tests.standins.hosting import Hosted

GROUP = "/apis/admissionregistration.k8s.io/v1"
POD_RULE = {
    "operations": ["*"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
}
_CANARY = "canary"


class Admitted:
    """Configurations for one namespace; what it makes is removed by `close`."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self._made: list[str] = []

    def selector(self) -> Object:
        """Selects the test's own namespace."""
        return {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}

    def hook(self, hosted: Hosted[Hook], *entries: Object, kind: str = "mutating") -> None:
        """Register the entries, and wait until the server goes by them."""
        name = f"contract-{uuid.uuid4().hex[:10]}"
        canary = {"rules": [{**POD_RULE, "resources": ["configmaps"]}]}
        listed = [*entries, {**canary, "failurePolicy": "Ignore"}]
        path = f"{GROUP}/{kind}webhookconfigurations"
        hooks = [self._entry(hosted.it, index, each) for index, each in enumerate(listed)]
        hooks[-1]["clientConfig"]["url"] += _CANARY
        self._make(path, {"metadata": {"name": name}, "webhooks": hooks})
        until(lambda: self._probe(hosted.it))

    def policy(self, spec: Object, **binding: Any) -> str:
        """Create a policy for pods of the namespace, and its binding; its name."""
        name = f"contract-{uuid.uuid4().hex[:10]}"
        constraints = {"resourceRules": [POD_RULE], "namespaceSelector": self.selector()}
        spec = {"matchConstraints": constraints, **spec}
        self._make(
            f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec}
        )
        bound = {"policyName": name, "validationActions": ["Deny"], **binding}
        self._make(
            f"{GROUP}/validatingadmissionpolicybindings",
            {"metadata": {"name": name}, "spec": bound},
        )
        return name

    def close(self) -> None:
        for path in reversed(self._made):
            self.api.delete(path)

    def _make(self, path: str, body: Object) -> None:
        self.api.create(path, body)
        self._made.append(f"{path}/{body['metadata']['name']}")

    def _entry(self, hook: Hook, index: int, fields: Object) -> Object:
        return {
            "name": f"h{index}.contract.example",
            "clientConfig": hook.client_config("/"),
            "rules": [POD_RULE],
            "namespaceSelector": self.selector(),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }

    def _probe(self, hook: Hook) -> bool:
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        self.api.post(path, configmap("probe"), dryRun="All")
        return any(_CANARY in target for target in hook.targets)


@contextmanager
def hosted_hook(**settings: Any) -> Iterator[Hosted[Hook]]:
    """A webhook in a thread."""
    with Hosted(lambda: Hook(**settings)) as hosted:
        yield hosted


def asked(hosted: Hosted[Hook], resource: str = "pods") -> Sequence[Object]:
    """The requests for a resource that the webhook was asked about."""
    return [each for each in hosted.it.requests if each["resource"]["resource"] == resource]
