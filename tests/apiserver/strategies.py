"""How each built-in kind is defaulted, prepared and validated.

Invariant: every function gets an object that the caller owns (see schema.decode) and changes
only that; what a kind has no rule for is stored as it comes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tests.apiserver import events, pods, registration
from tests.apiserver.errors import Cause, bad_request
from tests.apiserver.metadata import forbidden_field, invalid_value, required

Object = dict[str, Any]


def _nothing(obj: Object) -> None:
    return None


def _nothing_to_old(obj: Object, old: Object) -> None:
    return None


def _no_causes(obj: Object) -> list[Cause]:
    return []


def _no_update_causes(obj: Object, old: Object) -> list[Cause]:
    return []


def _keep_status(obj: Object, old: Object) -> None:
    if "status" in old:
        obj["status"] = old["status"]
    else:
        obj.pop("status", None)


def _status_only(obj: Object, old: Object) -> None:
    """A status write: everything but status and the metadata that clients own is as stored."""
    for field in [*obj, *old]:
        if field in ("metadata", "status", "apiVersion", "kind"):
            continue
        if field in old:
            obj[field] = old[field]
        else:
            obj.pop(field, None)


def drop_status(obj: Object) -> None:
    obj.pop("status", None)


def _empty_status(obj: Object) -> None:
    obj["status"] = {}


@dataclass(frozen=True, slots=True)
class Strategy:
    """`generation`: metadata.generation counts the changes of spec."""

    default: Callable[[Object], None] = _nothing
    prepare_create: Callable[[Object], None] = _nothing
    prepare_update: Callable[[Object, Object], None] = _nothing_to_old
    prepare_status: Callable[[Object, Object], None] = _status_only
    validate: Callable[[Object], list[Cause]] = _no_causes
    validate_create: Callable[[Object], list[Cause]] = _no_causes
    validate_update: Callable[[Object, Object], list[Cause]] = _no_update_causes
    generation: bool = False
    grace_seconds: Callable[[Object, int | None], int] | None = None


# namespaces


def _namespace_default(obj: Object) -> None:
    name = obj["metadata"].get("name")
    if name:
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = name


def _namespace_create(obj: Object) -> None:
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}


def _namespace_update(obj: Object, old: Object) -> None:
    obj["spec"] = old.get("spec", {})
    _keep_status(obj, old)


# secrets and configmaps


_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_DATA_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',"
    "  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _secret_default(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    for text in (obj.get("data") or {}).values():
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise bad_request(
                'Secret in version "v1" cannot be handled as a Secret: illegal base64 data'
            ) from error
    plain = obj.pop("stringData", None)
    if plain:
        data = obj.setdefault("data", {})
        for key, text in plain.items():
            data[key] = base64.b64encode(text.encode()).decode()


def _data_validate(obj: Object) -> list[Cause]:
    causes = [
        invalid_value(f"{field}[{key}]", key, _DATA_KEY_RULE)
        for field in ("data", "binaryData")
        for key in obj.get(field) or ()
        if _DATA_KEY.fullmatch(key) is None
    ]
    if obj.get("type") == "kubernetes.io/tls":
        causes += [
            required(f"data[{key}]")
            for key in ("tls.crt", "tls.key")
            if key not in (obj.get("data") or {})
        ]
    return causes


def _immutable_data(obj: Object, old: Object) -> list[Cause]:
    causes = []
    if obj.get("type") != old.get("type"):
        causes.append(invalid_value("type", obj.get("type"), "field is immutable"))
    if old.get("immutable"):
        why = "field is immutable when `immutable` is set"
        causes += [
            forbidden_field(field, why)
            for field in ("immutable", "data", "binaryData")
            if obj.get(field) != old.get(field)
        ]
    return causes


# services


def _service_default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("ipFamilies", ["IPv4"])
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _service_create(obj: Object) -> None:
    spec = obj["spec"]
    if spec["type"] != "ExternalName":
        spec.setdefault("clusterIP", _cluster_ip())
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    obj["status"] = {"loadBalancer": {}}


_addresses = iter(range(1, 1 << 20))


def _cluster_ip() -> str:
    number = next(_addresses)
    return f"10.{96 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _service_update(obj: Object, old: Object) -> None:
    for field in ("clusterIP", "clusterIPs"):
        if field in old.get("spec", {}):
            obj["spec"].setdefault(field, old["spec"][field])
    _keep_status(obj, old)


def _service_validate(obj: Object) -> list[Cause]:
    spec = obj["spec"]
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        return [required("spec.ports")]
    return []


# workloads


def _replicas_default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    _template_default(obj)


def _deployment_default(obj: Object) -> None:
    _replicas_default(obj)
    spec = obj["spec"]
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def _set_default(obj: Object) -> None:
    _replicas_default(obj)
    spec = obj["spec"]
    spec.setdefault("podManagementPolicy", "OrderedReady")
    update = spec.setdefault("updateStrategy", {"type": "RollingUpdate"})
    if update.get("type") == "RollingUpdate":
        update.setdefault("rollingUpdate", {}).setdefault("partition", 0)


def _template_default(obj: Object) -> None:
    template = obj.setdefault("spec", {}).get("template")
    if template and "spec" in template:
        spec = template["spec"]
        pods.default_spec(spec)
        if "serviceAccountName" in spec:
            spec["serviceAccount"] = spec["serviceAccountName"]


def _selector_validate(obj: Object) -> list[Cause]:
    spec = obj["spec"]
    causes = []
    if not spec.get("selector"):
        causes.append(required("spec.selector"))
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        why = "`selector` does not match template `labels`"
        shown = msgspec.json.encode(labels).decode()
        text = f"Invalid value: {shown}: {why}"
        causes.append(Cause("FieldValueInvalid", text, "spec.template.metadata.labels"))
    return causes


def _selector_immutable(obj: Object, old: Object) -> list[Cause]:
    if obj["spec"].get("selector") != old["spec"].get("selector"):
        why = "field is immutable"
        return [invalid_value("spec.selector", obj["spec"].get("selector"), why)]
    return []


# others


def _budget_create(obj: Object) -> None:
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    obj["status"] = dict.fromkeys(counts, 0)


def _slice_default(obj: Object) -> None:
    for port in obj.get("ports", ()):
        port.setdefault("protocol", "TCP")


def _lease_validate(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = []
    for field, least, why in (
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ):
        value = spec.get(field)
        if value is not None and value < least:
            causes.append(invalid_value(f"spec.{field}", value, why))
    return causes


_WITH_STATUS = Strategy(prepare_create=drop_status, prepare_update=_keep_status, generation=True)
_WORKLOAD = Strategy(
    default=_replicas_default,
    prepare_create=_empty_status,
    prepare_update=_keep_status,
    validate=_selector_validate,
    validate_update=_selector_immutable,
    generation=True,
)
_WEBHOOKS = Strategy(
    default=registration.webhooks_default, validate=registration.webhooks_validate, generation=True
)


def custom_strategy(has_status: bool, validate: Callable[[Object], list[Cause]]) -> Strategy:
    """Of a custom resource, with or without the status subresource."""
    plain = _WITH_STATUS if has_status else Strategy(generation=True)
    return replace(plain, validate=validate)


_ADMISSION = "admissionregistration.k8s.io"
_TABLE: dict[str, Strategy] = {
    "pods": Strategy(
        default=pods.default,
        prepare_create=pods.prepare_create,
        prepare_update=pods.prepare_update,
        prepare_status=pods.prepare_status,
        validate=pods.validate,
        validate_update=pods.validate_update,
        generation=True,
        grace_seconds=pods.grace_seconds,
    ),
    "namespaces": Strategy(
        default=_namespace_default,
        prepare_create=_namespace_create,
        prepare_update=_namespace_update,
    ),
    "secrets": Strategy(
        default=_secret_default, validate=_data_validate, validate_update=_immutable_data
    ),
    "configmaps": Strategy(validate=_data_validate, validate_update=_immutable_data),
    "services": Strategy(
        default=_service_default,
        prepare_create=_service_create,
        prepare_update=_service_update,
        validate=_service_validate,
    ),
    "nodes": Strategy(prepare_update=_keep_status),
    "events": Strategy(validate=events.validate),
    "events.events.k8s.io": Strategy(
        validate=events.validate,
        validate_create=events.validate_new,
        validate_update=events.validate_new_update,
    ),
    "leases.coordination.k8s.io": Strategy(validate=_lease_validate),
    "deployments.apps": replace(_WORKLOAD, default=_deployment_default),
    "replicasets.apps": _WORKLOAD,
    "statefulsets.apps": replace(_WORKLOAD, default=_set_default),
    "daemonsets.apps": Strategy(
        default=_template_default,
        prepare_create=drop_status,
        prepare_update=_keep_status,
        validate=_selector_validate,
        generation=True,
    ),
    "jobs.batch": Strategy(
        default=_template_default,
        prepare_create=drop_status,
        prepare_update=_keep_status,
        generation=True,
    ),
    "cronjobs.batch": _WITH_STATUS,
    "poddisruptionbudgets.policy": replace(_WITH_STATUS, prepare_create=_budget_create),
    "priorityclasses.scheduling.k8s.io": Strategy(
        default=lambda obj: obj.setdefault("preemptionPolicy", "PreemptLowerPriority"),
        generation=True,
    ),
    "endpointslices.discovery.k8s.io": Strategy(default=_slice_default, generation=True),
    "networkpolicies.networking.k8s.io": Strategy(generation=True),
    f"mutatingwebhookconfigurations.{_ADMISSION}": _WEBHOOKS,
    f"validatingwebhookconfigurations.{_ADMISSION}": _WEBHOOKS,
    f"validatingadmissionpolicies.{_ADMISSION}": Strategy(
        default=registration.policy_default,
        prepare_create=drop_status,
        prepare_update=_keep_status,
        generation=True,
    ),
    f"validatingadmissionpolicybindings.{_ADMISSION}": Strategy(
        default=registration.policy_default,
        validate=registration.policy_binding_validate,
        generation=True,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        default=registration.definition_default,
        prepare_create=registration.definition_create,
        prepare_update=_keep_status,
        validate=registration.definition_validate,
        generation=True,
    ),
}


def strategy_for(resource: str) -> Strategy:
    """`resource` is plural.group."""
    return _TABLE.get(resource, Strategy())
