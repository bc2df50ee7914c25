"""Pods and reviews for the tests of admission."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from webhook import stamps

Object = dict[str, Any]

NOW_NS = 1_790_000_000_123_456_789
RANDOM = bytes(range(1, 11))
OWNER_UID = "5b2a1c86-3f0e-4b7c-9d55-2f1f6f3f9a01"
POD_UID = "9e1d7c52-0b7e-4c6d-8a44-7d6f0b1c2d03"


def incarnation(seconds_ago: float = 3600.0, now_ns: int = NOW_NS) -> str:
    """One that was minted some time ago."""
    return stamps.incarnation_at(now_ns // 1_000_000 - int(seconds_ago * 1000), bytes(10))


STORED = incarnation()
OTHER = stamps.incarnation_at(NOW_NS // 1_000_000 - 7_200_000, b"\xff" * 10)


def owner(
    kind: str = "PodSet",
    name: str = "ps",
    api_version: str = "orchestration.aibrix.ai/v1alpha1",
    uid: str = OWNER_UID,
) -> Object:
    """A controller owner reference."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def statefulset(name: str = "web") -> Object:
    return owner("StatefulSet", name, "apps/v1")


def role_set() -> Object:
    return owner("RoleSet", "roles")


def pod(
    name: str | None = "engine",
    *,
    labels: Object | None = None,
    annotations: Object | None = None,
    owners: list[Object] | None = None,
    args: list[str] | None = None,
    command: list[str] | None = None,
    **metadata: Any,
) -> Object:
    """A small pod; what is None is left out."""
    meta: Object = {"name": name, "labels": labels, "annotations": annotations}
    meta |= {"ownerReferences": owners} | metadata
    container: Object = {"name": "engine", "image": "engine:1", "command": command, "args": args}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in meta.items() if value is not None},
        "spec": {"containers": [{k: v for k, v in container.items() if v is not None}]},
    }


def stamped(
    name: str = "engine",
    *,
    labels: Object | None = None,
    annotations: Object | None = None,
    **more: Any,
) -> Object:
    """A pod as podstamp stored it an hour ago."""
    return pod(
        name,
        labels={stamps.MANAGED: "true"} | (labels or {}),
        annotations={stamps.INCARNATION: STORED} | (annotations or {}),
        **more,
    )


def changed(
    base: Object,
    *,
    labels: Object | None = None,
    annotations: Object | None = None,
    **metadata: Any,
) -> Object:
    """`base` with these keys set; None removes one."""
    result = copy.deepcopy(base)
    meta = result["metadata"]
    for where, values in (("labels", labels), ("annotations", annotations)):
        for key, value in (values or {}).items():
            entries = meta.get(where)
            if entries is None:
                entries = meta[where] = {}
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
    for key, value in metadata.items():
        if value is None:
            meta.pop(key, None)
        else:
            meta[key] = value
    return result


def review(
    operation: str,
    new: Any = None,
    old: Any = None,
    *,
    namespace: str = "models",
    user: str = "jane",
    groups: tuple[str, ...] = (),
    uid: str = "705ab4f5-6393-11e8-b7cc-42010a800002",
    options: Object | None = None,
    **fields: Any,
) -> Object:
    """An AdmissionReview as kube-apiserver sends it."""
    shown = new if new is not None else old
    metadata = shown.get("metadata") if isinstance(shown, dict) else None
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    resource = {"group": "", "version": "v1", "resource": "pods"}
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": name,
            "namespace": namespace,
            "operation": operation,
            "userInfo": {"username": user, "groups": list(groups)},
            "object": new,
            "oldObject": old,
            "dryRun": False,
            "options": options or {},
        }
        | fields,
    }


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)
