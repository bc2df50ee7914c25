"""Manifests of pods and PodSets as the tests create them."""

from collections.abc import Mapping
from typing import Any

import yaml

AIBRIX_INDEX = "stormservice.orchestration.aibrix.ai/pod-group-index"
AIBRIX_SET = "stormservice.orchestration.aibrix.ai/podset-name"
PODSET_API = "orchestration.aibrix.ai/v1alpha1"

Manifest = dict[str, Any]


def pod(
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str | None = None,
    finalizers: list[str] | None = None,
) -> Manifest:
    """One engine pod; without a node nobody runs it, and a delete takes it at once."""
    metadata: Manifest = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if finalizers:
        metadata["finalizers"] = finalizers
    spec: Manifest = {
        "containers": [
            {"name": "engine", "image": "vllm/vllm-openai", "ports": [{"containerPort": 8000}]}
        ]
    }
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def podset(name: str, namespace: str, size: int) -> Manifest:
    """A PodSet, which on this control plane only the stand-in controller acts on."""
    return {
        "apiVersion": PODSET_API,
        "kind": "PodSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "podGroupSize": size,
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai"}]},
            },
        },
    }


def member(owner: Manifest, index: int, **options: Any) -> Manifest:
    """The pod of that index, as AIBrix's controller makes it; `owner` is the stored PodSet."""
    name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
    labels = {AIBRIX_SET: name, AIBRIX_INDEX: str(index)} | options.pop("labels", {})
    made = pod(f"{name}-{index}", namespace, labels=labels, **options)
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": PODSET_API,
            "kind": "PodSet",
            "name": name,
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return made


def open_definition(group: str, kind: str, version: str = "v1") -> Manifest:
    """A CustomResourceDefinition that takes any object of a kind, where only the name matters."""
    names = {"kind": kind, "plural": f"{kind.lower()}s"}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def text(*manifests: Manifest) -> str:
    """As YAML for `kubectl … -f -`."""
    return yaml.safe_dump_all(manifests)
