"""Pods: defaults, what may change after creation, and their own subresources.

Rules are those of the real server's pod strategies; every function takes an object that the
caller owns and may change it.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.errors import Cause
from tests.apiserver.metadata import forbidden_field, now_text, required

Object = dict[str, Any]

TERMINAL = ("Failed", "Succeeded")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_NOT_READY = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 300},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 300},
)  # fmt: skip


def default(pod: Object) -> None:
    """All that the server adds to a pod: defaults, tolerations, priority, shapes of its status."""
    spec = pod.setdefault("spec", {})
    default_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    tolerations = spec.setdefault("tolerations", [])
    for wanted in _NOT_READY:
        keys = (t.get("key") for t in tolerations if t.get("effect") in (None, "NoExecute"))
        if wanted["key"] not in keys:
            tolerations.append(dict(wanted))
    if status := pod.get("status"):
        _default_status(status)


def _default_status(status: Object) -> None:
    """Fields that the real server writes even when they are empty."""
    for condition in status.get("conditions", ()):
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for container in status.get(field, ()):
            for which in ("state", "lastState"):
                state = container.setdefault(which, {})
                if "running" in state:
                    state["running"].setdefault("startedAt", None)
                if "terminated" in state:
                    state["terminated"].setdefault("startedAt", None)
                    state["terminated"].setdefault("finishedAt", None)


def default_spec(spec: Object) -> None:
    """Defaults of a pod spec, in a pod or in a template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(field, ()):
            _default_container(container)
    for volume in spec.get("volumes", ()):
        for kind in ("configMap", "secret", "projected", "downwardAPI"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", 0o644)


def _default_probe(probe: Object) -> None:
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(field, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("scheme", "HTTP")
        probe["httpGet"].setdefault("path", "/")


def _default_container(container: Object) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        image = container.get("image") or ""
        tag = image.rpartition("/")[2].partition(":")[2]
        latest = "@" not in image and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        if kind in container:
            _default_probe(container[kind])
    for entry in container.get("env", ()):
        if ref := entry.get("valueFrom", {}).get("fieldRef"):
            ref.setdefault("apiVersion", "v1")


def _quality(spec: Object) -> str:
    """The pod's quality of service, from requests and limits of cpu and memory."""
    guaranteed, any_set = True, False
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        requests = {**limits, **(resources.get("requests") or {})}
        for name in ("cpu", "memory"):
            any_set = any_set or name in requests
            if name not in limits or requests[name] != limits[name]:
                guaranteed = False
    return "BestEffort" if not any_set else "Guaranteed" if guaranteed else "Burstable"


def prepare_create(pod: Object) -> None:
    spec = pod["spec"]
    spec.pop("ephemeralContainers", None)
    pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}
    if spec.get("nodeName"):
        return
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
             "message": "Scheduling is blocked due to non-empty scheduling gates",
             "lastProbeTime": None, "lastTransitionTime": None}
        ]  # fmt: skip


def prepare_update(pod: Object, old: Object) -> None:
    if "status" in old:
        pod["status"] = old["status"]


def prepare_status(pod: Object, old: Object) -> None:
    """A status write keeps the spec and the owners; labels and annotations follow the write."""
    pod["spec"] = old["spec"]
    owners = old["metadata"].get("ownerReferences")
    if owners is None:
        pod["metadata"].pop("ownerReferences", None)
    else:
        pod["metadata"]["ownerReferences"] = owners


def validate(pod: Object) -> list[Cause]:
    spec = pod["spec"]
    causes: list[Cause] = []
    if not spec.get("containers"):
        causes.append(required("spec.containers"))
    seen: set[str] = set()
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field, ())):
            causes += _check_container(f"spec.{field}[{index}]", container, seen)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        causes.append(
            _unsupported(
                "spec.restartPolicy", spec["restartPolicy"], "Always", "OnFailure", "Never"
            )
        )
    return causes


def _unsupported(field: str, value: str, *allowed: str) -> Cause:
    listed = ", ".join(f'"{item}"' for item in allowed)
    text = f'Unsupported value: "{value}": supported values: {listed}'
    return Cause("FieldValueNotSupported", text, field)


def _check_container(path: str, container: Object, seen: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name")
    if not name:
        causes.append(required(f"{path}.name"))
    elif name in seen:
        causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name"))
    else:
        seen.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for index, port in enumerate(container.get("ports", ())):
        number = port.get("containerPort", 0)
        where = f"{path}.ports[{index}].containerPort"
        if number == 0:
            causes.append(required(where))
        elif not 0 < number < 65536:
            causes.append(
                Cause(
                    "FieldValueInvalid",
                    f"Invalid value: {number}: must be between 1 and 65535, inclusive",
                    where,
                )
            )
    causes += [
        required(f"{path}.env[{index}].name")
        for index, entry in enumerate(container.get("env", ()))
        if not entry.get("name")
    ]
    return causes


def validate_update(pod: Object, old: Object) -> list[Cause]:
    new_spec, old_spec = pod["spec"], old["spec"]
    if new_spec == old_spec:
        return []
    for field in ("containers", "initContainers"):
        if len(new_spec.get(field, ())) != len(old_spec.get(field, ())):
            why = "pod updates may not add or remove containers"
            return [forbidden_field(f"spec.{field}", why)]
    causes: list[Cause] = []
    spec = dict(new_spec)
    for field in ("containers", "initContainers"):
        if field in old_spec:
            spec[field] = [
                {**new, "image": before.get("image")}
                for new, before in zip(spec[field], old_spec[field], strict=True)
            ]
    _restore(spec, old_spec, "activeDeadlineSeconds")
    if not all(_same_but_seconds(t, new_spec["tolerations"]) for t in old_spec["tolerations"]):
        why = "existing toleration can not be modified except its tolerationSeconds"
        causes.append(forbidden_field("spec.tolerations", why))
    _restore(spec, old_spec, "tolerations")
    gates = [gate["name"] for gate in old_spec.get("schedulingGates", ())]
    if all(gate["name"] in gates for gate in new_spec.get("schedulingGates", ())):
        _restore(spec, old_spec, "schedulingGates")
    return causes if spec == old_spec else [*causes, forbidden_field("spec", _IMMUTABLE)]


def _same_but_seconds(toleration: Object, others: list[Object]) -> bool:
    """Whether it is there still, apart from how long it tolerates."""
    wanted = {k: v for k, v in toleration.items() if k != "tolerationSeconds"}
    return any(
        wanted == {k: v for k, v in other.items() if k != "tolerationSeconds"} for other in others
    )


def _restore(spec: Object, old: Object, field: str) -> None:
    if field in old:
        spec[field] = old[field]
    else:
        spec.pop(field, None)


def bind(pod: Object, node: str, binding: Object) -> Object:
    """The pod as scheduled to `node`; the Binding's annotations and labels are merged in."""
    metadata = dict(pod["metadata"])
    given = binding.get("metadata") or {}
    for field in ("annotations", "labels"):
        if given.get(field):
            metadata[field] = {**metadata.get(field, {}), **given[field]}
    status = dict(pod.get("status") or {})
    status["conditions"] = set_condition(status.get("conditions", []), "PodScheduled", "True")
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": status,
    }


def evicted(pod: Object) -> Object:
    """The pod as the eviction API marks it before it deletes."""
    status = dict(pod.get("status") or {})
    status["conditions"] = set_condition(
        status.get("conditions", []),
        "DisruptionTarget",
        "True",
        reason="EvictionByEvictionAPI",
        message="Eviction API: evicting",
    )
    return {**pod, "status": status}


def set_condition(conditions: list[Object], type_: str, status: str, **more: str) -> list[Object]:
    """A new list in which the condition has this status, since now if it had another."""
    condition: Object = {"type": type_, "status": status, "lastProbeTime": None,
                         "lastTransitionTime": now_text(), **more}  # fmt: skip
    for index, held in enumerate(conditions):
        if held.get("type") == type_:
            if held.get("status") == status:
                condition["lastTransitionTime"] = held.get("lastTransitionTime")
            return [*conditions[:index], condition, *conditions[index + 1 :]]
    return [*conditions, condition]


def prepare_ephemeral(pod: Object, old: Object) -> None:
    """Only spec.ephemeralContainers may differ from the stored pod."""
    added = pod["spec"].get("ephemeralContainers")
    pod["metadata"] = {**old["metadata"], "resourceVersion": pod["metadata"].get("resourceVersion")}
    pod["spec"] = {k: v for k, v in old["spec"].items() if k != "ephemeralContainers"}
    if added:
        pod["spec"]["ephemeralContainers"] = added
    if "status" in old:
        pod["status"] = old["status"]


def validate_ephemeral(pod: Object, old: Object) -> list[Cause]:
    new = pod["spec"].get("ephemeralContainers", [])
    names = {container.get("name"): container for container in new}
    causes = [
        Cause(
            "FieldValueForbidden",
            f'Forbidden: existing ephemeral containers "{container["name"]}" may not be '
            + ("changed" if container["name"] in names else "removed"),
            "spec.ephemeralContainers",
        )
        for container in old["spec"].get("ephemeralContainers", ())
        if names.get(container["name"]) != container
    ]
    return causes or validate(pod)


def prepare_resize(pod: Object, old: Object) -> None:
    """Only the resources of containers that are there already may differ."""
    wanted = {c.get("name"): c for c in pod["spec"].get("containers", ())}
    containers = []
    for container in old["spec"]["containers"]:
        changed = dict(container)
        for field in ("resources", "resizePolicy"):
            given = wanted.get(container["name"], {}).get(field)
            if given is not None:
                changed[field] = given
        containers.append(changed)
    pod["metadata"] = {**old["metadata"], "resourceVersion": pod["metadata"].get("resourceVersion")}
    pod["spec"] = {**old["spec"], "containers": containers}
    if "status" in old:
        pod["status"] = old["status"]


def grace_seconds(pod: Object, asked: int | None) -> int:
    """How long a delete waits for the kubelet: not at all for a pod that no kubelet runs."""
    spec = pod["spec"]
    period = asked if asked is not None else int(spec.get("terminationGracePeriodSeconds", 30))
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in TERMINAL:
        return 0
    return 1 if period < 0 else period
