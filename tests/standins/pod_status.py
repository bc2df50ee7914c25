"""Pod statuses in the shape that a kubelet writes. Pure: a pod and an instant give a patch.

A patch is a strategic merge patch for pods/status that names the pod's uid, so that it never
lands on a successor of the same name.
"""

import hashlib
from collections.abc import Collection
from datetime import datetime
from enum import Enum
from typing import Any

Json = dict[str, Any]


class Start(Enum):
    """What becomes of a pod that nobody has started yet."""

    RUN = "run"
    UNSCHEDULED = "unscheduled"  # never bound to a node
    CREATING = "creating"  # bound, but its sandbox does not come up
    REJECTED = "rejected"  # bound, then refused by the kubelet: Failed, no container ever ran


def running(pod: Json, address: str, host: str, now: datetime) -> Json:
    """Running, with an address; ready unless a readiness gate is not met."""
    init = [
        _terminated(pod, each, 0, "Completed", now) for each in _declared(pod, "initContainers")
    ]
    status = {
        "phase": "Running",
        "conditions": _conditions(
            pod, now, PodReadyToStartContainers=True, Initialized=True, **_readiness(pod, True)
        ),
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": instant(now),
        "containerStatuses": [_started(pod, each, 0, now) for each in _declared(pod, "containers")],
    }
    if init:
        status["initContainerStatuses"] = init
    return _patch(pod, status)


def creating(pod: Json, host: str, now: datetime) -> Json:
    """Bound and accepted, but without a sandbox: no address, nothing started."""
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    status = {
        "phase": "Pending",
        "conditions": _conditions(
            pod,
            now,
            PodReadyToStartContainers=False,
            Initialized=not _declared(pod, "initContainers"),
            Ready=False,
            ContainersReady=False,
        ),
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": instant(now),
        "containerStatuses": [
            {
                "name": each["name"],
                "image": each.get("image", ""),
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": waiting,
                "lastState": {},
            }
            for each in _declared(pod, "containers")
        ],
    }
    return _patch(pod, status)


def rejected(pod: Json, now: datetime) -> Json:
    """Failed by the kubelet's own admission: there are no container statuses."""
    status = {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "Pod was rejected: the node has no device of the kind that is asked for",
        "startTime": instant(now),
    }
    return _patch(pod, status)


def terminal(
    pod: Json,
    phase: str,
    exit_code: int,
    now: datetime,
    *,
    reason: str = "",
    message: str = "",
    still_running: Collection[str] = (),
    drop_address: bool = False,
) -> Json:
    """Failed or Succeeded, all containers terminated but those that are `still_running`."""
    why = "Completed" if exit_code == 0 else "Error"
    states = {each["name"]: each for each in (pod.get("status") or {}).get("containerStatuses", ())}
    status: Json = {
        "phase": phase,
        "conditions": _conditions(pod, now, Ready=False, ContainersReady=False),
        "containerStatuses": [
            states[each["name"]]
            if each["name"] in still_running and each["name"] in states
            else _terminated(pod, each, exit_code, why, now)
            for each in _declared(pod, "containers")
        ],
    }
    if reason:
        status["reason"] = reason
    if message:
        status["message"] = message
    if drop_address:
        status |= {"podIP": None, "podIPs": None}
    return _patch(pod, status)


def restarted(pod: Json, container: str, now: datetime) -> Json:
    """One container was restarted in place: the same pod, another container id."""
    statuses = []
    for each in (pod.get("status") or {}).get("containerStatuses", ()):
        if each["name"] == container:
            fresh = _started(pod, each, each["restartCount"] + 1, now)
            ended = {"exitCode": 1, "reason": "Error", "containerID": each.get("containerID", "")}
            statuses.append({**fresh, "lastState": {"terminated": ended}})
        else:
            statuses.append(each)
    return _patch(pod, {"containerStatuses": statuses})


def ready(pod: Json, value: bool, now: datetime) -> Json:
    """Readiness as probes and readiness gates leave it."""
    statuses = [
        {**each, "ready": value} for each in (pod.get("status") or {}).get("containerStatuses", ())
    ]
    conditions = _conditions(pod, now, **_readiness(pod, value))
    return _patch(pod, {"conditions": conditions, "containerStatuses": statuses})


def is_ready(pod: Json) -> bool:
    """Whether the Ready condition is True."""
    return _condition(pod, "Ready").get("status") == "True"


def gates_met(pod: Json) -> bool:
    """Whether all conditions that the pod's readiness gates name are True."""
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    return all(_condition(pod, gate["conditionType"]).get("status") == "True" for gate in gates)


def containers_ready(pod: Json) -> bool:
    return _condition(pod, "ContainersReady").get("status") == "True"


def instant(now: datetime) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes its times."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _readiness(pod: Json, value: bool) -> dict[str, bool]:
    return {"ContainersReady": value, "Ready": value and gates_met(pod)}


def _patch(pod: Json, status: Json) -> Json:
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}


def _declared(pod: Json, kind: str) -> list[Json]:
    return list((pod.get("spec") or {}).get(kind) or ())


def _condition(pod: Json, kind: str) -> Json:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})


def _conditions(pod: Json, now: datetime, **wanted: bool) -> list[Json]:
    """Entries for a merge; the time of the last transition stays while the status does."""
    merged = []
    for kind, value in wanted.items():
        status = "True" if value else "False"
        old = _condition(pod, kind)
        since = old["lastTransitionTime"] if old.get("status") == status else instant(now)
        merged.append(
            {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        )
    return merged


def _started(pod: Json, container: Json, restarts: int, now: datetime) -> Json:
    return {
        **_identity(pod, container, restarts),
        "ready": True,
        "started": True,
        "restartCount": restarts,
        "state": {"running": {"startedAt": instant(now)}},
        "lastState": {},
    }


def _terminated(pod: Json, container: Json, exit_code: int, why: str, now: datetime) -> Json:
    old = next(
        (
            each
            for each in (pod.get("status") or {}).get("containerStatuses", ())
            if each["name"] == container["name"]
        ),
        {"restartCount": 0},
    )
    identity = _identity(pod, container, old["restartCount"])
    ended = {
        "exitCode": exit_code,
        "reason": why,
        "finishedAt": instant(now),
        "containerID": identity["containerID"],
    }
    return {
        **identity,
        "ready": False,
        "started": False,
        "restartCount": old["restartCount"],
        "state": {"terminated": ended},
        "lastState": {},
    }


def _identity(pod: Json, container: Json, restarts: int) -> Json:
    seed = f"{pod['metadata']['uid']}/{container['name']}/{restarts}"
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"sha256:{hashlib.sha256(image.encode()).hexdigest()}",
        "containerID": f"containerd://{hashlib.sha256(seed.encode()).hexdigest()}",
    }
