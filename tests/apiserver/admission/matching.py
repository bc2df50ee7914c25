"""Which webhooks and policies a request concerns: rules, namespaces and labels.

The rules are those of kube-apiserver: absent fields mean what its defaulting writes, and
configurations of admission itself are never intercepted, so that nobody locks himself out.
Equivalent resources (`matchPolicy`) are not looked for: each resource here has one version.
"""

from collections.abc import Iterable
from typing import Any

from tests.apiserver.admission.attributes import Attributes, Json
from tests.apiserver.admission.selectors import selects
from tests.apiserver.admission.subject import Subject

_REVIEW_GROUPS = {"authentication.k8s.io", "authorization.k8s.io"}
_ADMISSION_GROUP = "admissionregistration.k8s.io"
_ANY: Json = {
    "operations": ["*"],
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*/*"],
}


def webhooks_may_see(attributes: Attributes) -> bool:
    """Whether webhooks are asked at all: a broken one must not forbid its own repair."""
    return attributes.group not in _REVIEW_GROUPS and attributes.group != _ADMISSION_GROUP


def policies_may_see(attributes: Attributes) -> bool:
    """Whether policies are asked at all: never about themselves and their bindings."""
    if attributes.group == _ADMISSION_GROUP:
        return attributes.resource.endswith("webhookconfigurations")
    return attributes.group not in _REVIEW_GROUPS


def hook_matches(hook: Json, subject: Subject) -> bool:
    """Whether a webhook's selectors and rules hold.

    A namespace that does not exist is a 404, but only for a hook that concerns the request
    otherwise, and only if its selector has something to ask.
    """
    return _matches(hook, hook.get("rules") or (), subject)


def resources_match(criteria: Json, subject: Subject) -> bool:
    """Whether the MatchResources record of a policy or of its binding holds."""
    excluded = criteria.get("excludeResourceRules") or ()
    if any(rule_matches(rule, subject.attributes) for rule in excluded):
        return False
    return _matches(criteria, criteria.get("resourceRules") or (_ANY,), subject)


def _matches(criteria: Json, rules: Iterable[Json], subject: Subject) -> bool:
    attributes = subject.attributes
    selector = criteria.get("objectSelector")
    if selector and not any(
        selects(selector, (each.get("metadata") or {}).get("labels"))
        for each in (subject.obj, subject.old)
        if each is not None
    ):
        return False
    if not any(rule_matches(rule, attributes) for rule in rules):
        return False
    selector = criteria.get("namespaceSelector")
    if not selector or (not attributes.namespace and attributes.resource != "namespaces"):
        return True
    return selects(selector, subject.namespace_labels)


def rule_matches(rule: Json, attributes: Attributes) -> bool:
    """Whether operation, group, version, resource/subresource, scope and name of a rule hold."""
    names = rule.get("resourceNames")
    return (
        _lists(rule.get("operations"), attributes.operation)
        and _lists(rule.get("apiGroups"), attributes.group)
        and _lists(rule.get("apiVersions"), attributes.version)
        and any(_is_resource(each, attributes) for each in rule.get("resources") or ())
        and _in_scope(rule.get("scope"), attributes)
        and (not names or attributes.name in names)
    )


def _lists(items: Any, wanted: str) -> bool:
    return bool(items) and ("*" in items or wanted in items)


def _is_resource(pattern: str, attributes: Attributes) -> bool:
    resource, _, subresource = pattern.partition("/")
    return resource in ("*", attributes.resource) and subresource in ("*", attributes.subresource)


def _in_scope(scope: str | None, attributes: Attributes) -> bool:
    is_namespace = attributes.resource == "namespaces" and not attributes.group
    cluster_scoped = is_namespace or not attributes.namespace
    match scope:
        case None | "*":
            return True
        case "Cluster":
            return cluster_scoped
        case "Namespaced":
            return not cluster_scoped
        case _:
            return False
