"""Defaults and validation of what extends the API: webhooks, policies and definitions.

As in strategies.py, each function changes only the object that its caller owns.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.errors import Cause
from tests.apiserver.metadata import invalid_value, now_text, required

Object = dict[str, Any]


def webhooks_default(obj: Object) -> None:
    for webhook in obj.get("webhooks", ()):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if obj.get("kind") == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        if service := (webhook.get("clientConfig") or {}).get("service"):
            service.setdefault("port", 443)
        for rule in webhook.get("rules", ()):
            rule.setdefault("scope", "*")


def webhooks_validate(obj: Object) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, webhook in enumerate(obj.get("webhooks", ())):
        path = f"webhooks[{index}]"
        name = webhook.get("name", "")
        if name.count(".") < 2:
            why = "should be a domain with at least three segments separated by dots"
            causes.append(invalid_value(f"{path}.name", name, why))
        if name in seen:
            causes.append(
                Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name")
            )
        seen.add(name)
        if not webhook.get("admissionReviewVersions"):
            causes.append(required(f"{path}.admissionReviewVersions"))
        if webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            text = (
                f'Unsupported value: "{webhook.get("sideEffects", "")}": '
                'supported values: "None", "NoneOnDryRun"'
            )
            causes.append(Cause("FieldValueNotSupported", text, f"{path}.sideEffects"))
        if not 1 <= webhook["timeoutSeconds"] <= 30:
            why = "the timeout value must be between 1 and 30 seconds"
            causes.append(invalid_value(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], why))
        client = webhook.get("clientConfig") or {}
        if ("url" in client) == ("service" in client):
            causes.append(required(f"{path}.clientConfig", "exactly one of url or service"))
        elif "url" in client and not client["url"].startswith("https://"):
            why = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            scheme = client["url"].partition(":")[0]
            causes.append(invalid_value(f"{path}.clientConfig.url", scheme, why))
    return causes


def policy_default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if "matchConstraints" in spec:
        spec.setdefault("failurePolicy", "Fail")
    match = spec.get("matchConstraints") or spec.get("matchResources")
    if match:
        match.setdefault("matchPolicy", "Equivalent")
        match.setdefault("namespaceSelector", {})
        match.setdefault("objectSelector", {})
        for field in ("resourceRules", "excludeResourceRules"):
            for rule in match.get(field, ()):
                rule.setdefault("scope", "*")


def policy_binding_validate(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    return [required(f"spec.{f}") for f in ("policyName", "validationActions") if not spec.get(f)]


def definition_default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if "kind" in names:
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})


def definition_create(obj: Object) -> None:
    now = now_text()
    served = [
        {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now,
         "reason": "NoConflicts", "message": "no conflicts found"},
        {"type": "Established", "status": "True", "lastTransitionTime": now,
         "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
    ]  # fmt: skip
    spec = obj["spec"]
    obj["status"] = {
        "conditions": served,
        "acceptedNames": spec["names"],
        "storedVersions": [v["name"] for v in spec.get("versions", ()) if v.get("storage")],
    }


def definition_validate(obj: Object) -> list[Cause]:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    causes = [
        required(f"spec.{field}") for field in ("group", "scope", "versions") if not spec.get(field)
    ]
    causes += [
        required(f"spec.names.{field}")
        for field in ("plural", "kind")
        if not spec["names"].get(field)
    ]
    wanted = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    if not causes and name != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        causes.append(invalid_value("metadata.name", name, why))
    if sum(bool(v.get("storage")) for v in spec.get("versions", ())) != 1:
        why = "must have exactly one version marked as storage version"
        causes.append(invalid_value("spec.versions", len(spec.get("versions", ())), why))
    for index, version in enumerate(spec.get("versions", ())):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            causes.append(required(path, "schemas are required"))
    return causes
