"""Pods and namespaces as the API server would send them, and the structs that are read of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import msgspec

from kube.namespace import Namespace
from kube.pod import Pod
from webhook import stamps

BORN = datetime(2026, 1, 1, tzinfo=UTC)
TERMINATED = {"terminated": {"exitCode": 1, "reason": "Error"}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
WAITING = {"waiting": {"reason": "PodInitializing"}}
PODSET = {"apiVersion": "orchestration.aibrix.ai/v1alpha1", "kind": "PodSet"}
STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
JOB = {"apiVersion": "batch/v1", "kind": "Job"}


def incarnation(number: int = 1, *, minted: datetime = BORN) -> str:
    """A valid incarnation; another `number` is another one."""
    return stamps.new_incarnation(minted, random.Random(number).randbytes(10))


def owner(kind: dict[str, str], name: str = "web", *, controller: bool = True) -> dict[str, Any]:
    """An owner reference to an owner of that name; its UID follows from both."""
    return {**kind, "name": name, "uid": f"{kind['kind']}-{name}", "controller": controller}


def pod(
    name: str = "web-0",
    *,
    namespace: str = "llm",
    uid: str = "",
    version: str = "10",
    phase: str = "Running",
    managed: bool = True,
    stamp: str | None = "",
    born: datetime = BORN,
    deleted: bool = False,
    finalizers: tuple[str, ...] = (),
    owners: tuple[dict[str, Any], ...] | None = None,
    index: str | None = "0",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    containers: dict[str, dict[str, Any] | None] | None = None,
    init: dict[str, dict[str, Any] | None] | None = None,
    ephemeral: dict[str, dict[str, Any] | None] | None = None,
    node: str = "node-1",
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod of a PodSet; `containers` maps names to states, None being no status at all.

    `stamp`: the incarnation; empty makes one from the name and UID, None leaves it out.
    """
    uid = uid or f"uid-{namespace}-{name}"
    containers = {"engine": TERMINATED} if containers is None else containers
    init, ephemeral = init or {}, ephemeral or {}
    if stamp == "":
        stamp = incarnation(crc32(uid.encode()), minted=born)
    all_labels = {"app": "engine"} | ({stamps.MANAGED: "true"} if managed else {})
    if index is not None:
        all_labels |= {stamps.PODSET: "web", stamps.PODSET_INDEX: index}
    all_annotations = {stamps.INCARNATION: stamp} if stamp is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": version,
            "creationTimestamp": born.isoformat(),
            **({"deletionTimestamp": (born + timedelta(hours=1)).isoformat()} if deleted else {}),
            "finalizers": list(finalizers),
            "labels": all_labels | (labels or {}),
            "annotations": all_annotations | (annotations or {}),
            "ownerReferences": list((owner(PODSET),) if owners is None else owners),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": one} for one in containers],
            "initContainers": [{"name": one} for one in init],
            "ephemeralContainers": [{"name": one} for one in ephemeral],
        },
        "status": {
            "phase": phase,
            "containerStatuses": _statuses(containers),
            "initContainerStatuses": _statuses(init),
            "ephemeralContainerStatuses": _statuses(ephemeral),
            **(status or {}),
        },
    }


def dead(index: int = 1, phase: str = "Failed", **more: Any) -> dict[str, Any]:
    """A pod of a PodSet that has ended."""
    return pod(f"web-{index}", phase=phase, index=str(index), **more)


def as_pod(document: dict[str, Any]) -> Pod:
    """What the client would decode."""
    return msgspec.convert(document, Pod)


def namespace(name: str = "llm", *, enabled: bool = True, **labels: str) -> Namespace:
    all_labels = ({stamps.ENABLED: "true"} if enabled else {}) | labels
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": f"1{int(enabled)}"}
    return msgspec.convert({"metadata": {**meta, "labels": all_labels}}, Namespace)


def _statuses(states: dict[str, dict[str, Any] | None]) -> list[dict[str, Any]]:
    return [{"name": name, "state": state} for name, state in states.items() if state is not None]
