import pytest

from kube import paths
from kube.errors import ConfigError


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.pods(), "/api/v1/pods"),
        (paths.pods("ns"), "/api/v1/namespaces/ns/pods"),
        (paths.pod("ns", "a"), "/api/v1/namespaces/ns/pods/a"),
        (paths.pod_status("ns", "a"), "/api/v1/namespaces/ns/pods/a/status"),
        (paths.namespaces(), "/api/v1/namespaces"),
        (paths.namespace("ns"), "/api/v1/namespaces/ns"),
        (paths.nodes(), "/api/v1/nodes"),
        (paths.node("n"), "/api/v1/nodes/n"),
        (paths.secrets("ns"), "/api/v1/namespaces/ns/secrets"),
        (paths.secret("ns", "s"), "/api/v1/namespaces/ns/secrets/s"),
        (paths.configmaps("ns"), "/api/v1/namespaces/ns/configmaps"),
        (paths.configmap("ns", "c"), "/api/v1/namespaces/ns/configmaps/c"),
        (paths.services("ns"), "/api/v1/namespaces/ns/services"),
        (paths.service("ns", "s"), "/api/v1/namespaces/ns/services/s"),
        (
            paths.endpointslices("ns"),
            "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices",
        ),
        (
            paths.endpointslice("ns", "e"),
            "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/e",
        ),
        (paths.leases("ns"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases"),
        (paths.lease("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        (paths.events("ns"), "/apis/events.k8s.io/v1/namespaces/ns/events"),
        (paths.event("ns", "e"), "/apis/events.k8s.io/v1/namespaces/ns/events/e"),
        (
            paths.mutating_webhook("p"),
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/p",
        ),
        (
            paths.mutating_webhooks(),
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        ),
        (
            paths.validating_webhook("p"),
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/p",
        ),
        (
            paths.validating_webhooks(),
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        ),
        (
            paths.policy("p"),
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p",
        ),
        (paths.policies(), "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"),
        (
            paths.policy_binding("p"),
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/p",
        ),
        (
            paths.policy_bindings(),
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        ),
        (paths.custom("g.io", "v1", "things"), "/apis/g.io/v1/things"),
        (
            paths.custom("g.io", "v1", "things", "ns", "t"),
            "/apis/g.io/v1/namespaces/ns/things/t",
        ),
    ],
)
def test_a_path_is_where_kubernetes_has_it(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("name", ["", ".", "..", "\udcff"])
def test_what_no_encoding_keeps_in_its_place_is_refused(name: str) -> None:
    for namespace, pod in (("ns", name), (name, "a")):
        with pytest.raises(ConfigError, match="is no name of an object"):
            paths.pod(namespace, pod)


@pytest.mark.parametrize("name", ["a/b", "../x", "a?b", "a#b", "a%2fb", "a b"])
def test_no_name_leaves_its_place_in_the_path(name: str) -> None:
    for path in (paths.pod("ns", name), paths.pod(name, "a"), paths.custom(name, "v1", "t")):
        assert path.count("/") == paths.pod("ns", "a").count("/") or "/apis/" in path
        assert "?" not in path
        assert "#" not in path
    last = paths.pod("ns", name).removeprefix("/api/v1/namespaces/ns/pods/")
    assert "/" not in last
