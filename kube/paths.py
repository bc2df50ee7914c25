"""URL paths of the Kubernetes API, built from names.

Invariant: pure; names are percent-encoded, so that none can leave its place in the path; what no
encoding keeps there (nothing, one dot, two dots) is a ConfigError.
"""

from urllib.parse import quote

from kube.errors import ConfigError

_CORE = "/api/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def _path(
    root: str, plural: str, namespace: str | None = None, name: str | None = None, sub: str = ""
) -> str:
    parts = [root]
    if namespace is not None:
        parts += ["namespaces", _segment(namespace)]
    parts.append(plural)
    if name is not None:
        parts.append(_segment(name))
    if sub:
        parts.append(sub)
    return "/".join(parts)


def _segment(name: str) -> str:
    try:
        encoded = quote(name, safe="")
    except UnicodeEncodeError:
        encoded = ""
    if encoded in ("", ".", ".."):
        raise ConfigError(f"{name!r} is no name of an object")
    return encoded


def pods(namespace: str | None = None) -> str:
    """All pods, or those of one namespace."""
    return _path(_CORE, "pods", namespace)


def pod(namespace: str, name: str) -> str:
    return _path(_CORE, "pods", namespace, name)


def pod_status(namespace: str, name: str) -> str:
    return _path(_CORE, "pods", namespace, name, "status")


def namespaces() -> str:
    return _path(_CORE, "namespaces")


def namespace(name: str) -> str:
    return _path(_CORE, "namespaces", None, name)


def nodes() -> str:
    return _path(_CORE, "nodes")


def node(name: str) -> str:
    return _path(_CORE, "nodes", None, name)


def secrets(namespace: str | None = None) -> str:
    return _path(_CORE, "secrets", namespace)


def secret(namespace: str, name: str) -> str:
    return _path(_CORE, "secrets", namespace, name)


def configmaps(namespace: str | None = None) -> str:
    return _path(_CORE, "configmaps", namespace)


def configmap(namespace: str, name: str) -> str:
    return _path(_CORE, "configmaps", namespace, name)


def services(namespace: str | None = None) -> str:
    return _path(_CORE, "services", namespace)


def service(namespace: str, name: str) -> str:
    return _path(_CORE, "services", namespace, name)


def endpointslices(namespace: str | None = None) -> str:
    return _path("/apis/discovery.k8s.io/v1", "endpointslices", namespace)


def endpointslice(namespace: str, name: str) -> str:
    return _path("/apis/discovery.k8s.io/v1", "endpointslices", namespace, name)


def leases(namespace: str | None = None) -> str:
    return _path("/apis/coordination.k8s.io/v1", "leases", namespace)


def lease(namespace: str, name: str) -> str:
    return _path("/apis/coordination.k8s.io/v1", "leases", namespace, name)


def events(namespace: str | None = None) -> str:
    """Events of events.k8s.io/v1."""
    return _path("/apis/events.k8s.io/v1", "events", namespace)


def event(namespace: str, name: str) -> str:
    """One event of events.k8s.io/v1."""
    return _path("/apis/events.k8s.io/v1", "events", namespace, name)


def mutating_webhooks() -> str:
    return _path(_ADMISSION, "mutatingwebhookconfigurations")


def mutating_webhook(name: str) -> str:
    return _path(_ADMISSION, "mutatingwebhookconfigurations", None, name)


def validating_webhooks() -> str:
    return _path(_ADMISSION, "validatingwebhookconfigurations")


def validating_webhook(name: str) -> str:
    return _path(_ADMISSION, "validatingwebhookconfigurations", None, name)


def policies() -> str:
    return _path(_ADMISSION, "validatingadmissionpolicies")


def policy(name: str) -> str:
    return _path(_ADMISSION, "validatingadmissionpolicies", None, name)


def policy_bindings() -> str:
    return _path(_ADMISSION, "validatingadmissionpolicybindings")


def policy_binding(name: str) -> str:
    return _path(_ADMISSION, "validatingadmissionpolicybindings", None, name)


def custom(
    group: str, version: str, plural: str, namespace: str | None = None, name: str | None = None
) -> str:
    """A custom resource, or with no `name` its collection."""
    root = "/".join(("/apis", quote(group, safe=""), quote(version, safe="")))
    return _path(root, quote(plural, safe=""), namespace, name)
