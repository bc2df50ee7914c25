"""What a PodSet controller decides, as AIBrix's does: pure, from a set and the pods that it sees.

A pod counts until it is Failed or Succeeded, also while it is being deleted. The slots that no
counted pod holds are filled by name, whether or not a pod that ended still has that name.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

GROUP = "orchestration.aibrix.ai"
VERSION = "v1alpha1"
PLURAL = "podsets"
KIND = "PodSet"
FINALIZER = "orchestration.aibrix.ai/podset-finalizer"
SET_LABEL = "stormservice.orchestration.aibrix.ai/podset-name"
INDEX_LABEL = "stormservice.orchestration.aibrix.ai/pod-group-index"

_NAME_MAX = 63
_NO_INDEX = 1 << 62


@dataclass(frozen=True, slots=True)
class Steps:
    """What one pass does: deletes first, and creates only if there is nothing to delete."""

    delete: tuple[str, ...] = ()
    create: tuple[int, ...] = ()


def plan(podset: Json, pods: Iterable[Json]) -> Steps:
    """The steps from the pods that bear the set's label to the size that it wants."""
    spec = podset["spec"]
    wanted = spec["podGroupSize"]
    active = sorted((pod for pod in pods if is_active(pod)), key=_index)
    if len(active) > wanted:
        return Steps(delete=tuple(_name(pod) for pod in reversed(active[wanted:])))
    if len(active) == wanted:
        return Steps()
    if spec.get("recoveryPolicy", "ReplaceUnhealthy") == "Recreate":
        if active:
            return Steps(delete=tuple(_name(pod) for pod in active))
        return Steps(create=tuple(range(wanted)))
    unhealthy = tuple(_name(pod) for pod in active if _was_restarted(pod))
    if unhealthy:
        return Steps(delete=unhealthy)
    held = {_index(pod) for pod in active}
    return Steps(create=tuple(index for index in range(wanted) if index not in held))


def make_pod(podset: Json, index: int) -> Json:
    """The pod of one index, from the set's template."""
    metadata = podset["metadata"]
    name = metadata["name"]
    template = copy.deepcopy(podset["spec"]["template"])
    given = template.get("metadata") or {}
    own = {SET_LABEL: name, INDEX_LABEL: str(index)}
    labels = {**(metadata.get("labels") or {}), **(given.get("labels") or {}), **own}
    annotations = {**(metadata.get("annotations") or {}), **(given.get("annotations") or {})}
    spec = template.get("spec") or {}
    spec["hostname"] = pod_name(name, index)
    variables = {
        "PODSET_NAME": name,
        "POD_GROUP_INDEX": str(index),
        "POD_GROUP_SIZE": str(podset["spec"]["podGroupSize"]),
    }
    built_in = [{"name": key, "value": value} for key, value in variables.items()]
    for container in [*spec.get("initContainers", ()), *spec.get("containers", ())]:
        own_env = [each for each in container.get("env") or () if each["name"] not in variables]
        container["env"] = built_in + own_env
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(name, index),
            "generateName": f"{name}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "finalizers": list(given.get("finalizers") or ()),
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": KIND,
                    "name": name,
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def pod_name(podset: str, index: int) -> str:
    """`<podset>-<index>`; a long one keeps its first character and its end."""
    name = f"{podset}-{index}"
    return name if len(name) < _NAME_MAX else name[0] + name[1 - _NAME_MAX :]


def status_of(podset: Json, pods: Iterable[Json]) -> Json:
    """The set's status."""
    active = [pod for pod in pods if is_active(pod)]
    ready = sum(_is_ready(pod) for pod in active)
    if ready and ready == podset["spec"]["podGroupSize"]:
        phase = "Ready"
    else:
        phase = "Running" if ready else "Pending"
    return {"readyPods": ready, "totalPods": len(active), "phase": phase}


def is_active(pod: Json) -> bool:
    """Whether the set counts the pod."""
    return (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")


def _was_restarted(pod: Json) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(each.get("restartCount", 0) > 0 for each in statuses)


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _index(pod: Json) -> int:
    label = (pod["metadata"].get("labels") or {}).get(INDEX_LABEL, "")
    return int(label) if label.isdecimal() else _NO_INDEX


def _name(pod: Json) -> str:
    return str(pod["metadata"]["name"])
