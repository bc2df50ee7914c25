"""The objects that an admission chain is tested on, and attributes of requests for pods."""

from collections.abc import Iterable
from typing import Any

from tests.apiserver.admission.attributes import Attributes

Json = dict[str, Any]
GROUP = "admissionregistration.k8s.io"


class MemorySource:
    """An ObjectSource that counts how often its objects are listed."""

    def __init__(self, **namespaces: dict[str, str]) -> None:
        self.lists = 0
        self._objects: dict[tuple[str, str], list[Json]] = {}
        self._revisions: dict[tuple[str, str], int] = {}
        for name, labels in namespaces.items():
            self.put("", "namespaces", {"metadata": {"name": name, "labels": labels}})

    def put(self, group: str, resource: str, *objects: Json) -> None:
        self._objects.setdefault((group, resource), []).extend(objects)
        self._revisions[group, resource] = self.revision(group, resource) + 1

    def objects(self, group: str, resource: str, namespace: str | None = None) -> Iterable[Json]:
        self.lists += 1
        for each in self._objects.get((group, resource), ()):
            if namespace is None or each["metadata"].get("namespace") == namespace:
                yield each

    def namespace(self, name: str) -> Json | None:
        stored = self._objects.get(("", "namespaces"), ())
        return next((each for each in stored if each["metadata"]["name"] == name), None)

    def revision(self, group: str, resource: str) -> int:
        return self._revisions.get((group, resource), 0)

    def hooks(self, configuration: str, *entries: Json, mutating: bool = True) -> None:
        """Store a webhook configuration."""
        kind = "mutating" if mutating else "validating"
        stored = {"metadata": {"name": configuration}, "webhooks": list(entries)}
        self.put(GROUP, f"{kind}webhookconfigurations", stored)

    def policy(self, name: str, spec: Json, *bindings: Json) -> None:
        """Store a policy that concerns pods, with bindings named b0, b1, …; one that denies."""
        spec = {"matchConstraints": {"resourceRules": [rule()]}, **spec}
        self.put(GROUP, "validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
        for index, each in enumerate(bindings or ({},)):
            binding = {"policyName": name, "validationActions": ["Deny"], **each}
            self.put(
                GROUP,
                "validatingadmissionpolicybindings",
                {"metadata": {"name": f"b{index}"}, "spec": binding},
            )


def rule(resources: tuple[str, ...] = ("pods",), **fields: Any) -> Json:
    return {
        "operations": ["*"],
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": list(resources),
        **fields,
    }


def entry(client_config: Json, name: str = "a.example.dev", **fields: Any) -> Json:
    return {
        "name": name,
        "clientConfig": client_config,
        "rules": [rule()],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


def pods(operation: Any = "CREATE", **fields: Any) -> Attributes:
    return Attributes(
        **{
            "operation": operation,
            "resource": "pods",
            "kind": "Pod",
            "namespace": "ns",
            "name": "p",
            "username": "ann",
            "groups": ("people",),
            **fields,
        }
    )


def pod(name: str = "p", **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
