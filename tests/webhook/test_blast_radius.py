"""With the webhook down: what has to go through does, and nothing forged does."""

from __future__ import annotations

import copy
import socket
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import yaml

from tests.apiserver import EmbeddedCluster
from tests.webhook.builders import (
    OTHER,
    STORED,
    Object,
    changed,
    owner,
    pod,
    role_set,
    stamped,
)
from tests.webhook.rows import FENCED_USER, IN_SET
from tests.webhook.site import (
    ADMISSION,
    HOLD,
    Answer,
    Site,
    base,
    by_url,
    open_site,
    pods,
    write_pair,
)
from webhook.config import FencedDeleters
from webhook.entries import delete_entry
from webhook.stamps import (
    ADAPTERS,
    ADAPTERS_DIGEST,
    ENABLED,
    IF_INCARNATION,
    INCARNATION,
    LORA_MODIFIED,
    MANAGED,
    PODSET_INDEX,
    RESTORE,
    RETIRED,
)

FULL = stamped("ps-3", owners=[owner()], labels=IN_SET, annotations={"note": "x"})
MERGE = dict[str, Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All webhook entries, the one for deletes too, at a port where nobody listens."""
    ca_pem = write_pair(tmp_path_factory.mktemp("certs"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"https://127.0.0.1:{free.getsockname()[1]}"
    deleters = msgspec.convert({"users": [FENCED_USER]}, FencedDeleters)
    with EmbeddedCluster() as cluster, open_site(cluster) as opened:
        mutating, validating = base("webhooks.yaml")
        validating["webhooks"] += yaml.safe_load(delete_entry(deleters))["webhooks"]
        opened.install(*(by_url(each, url, ca_pem) for each in (mutating, validating)))
        opened.install(*base("policies.yaml"))
        yield opened


@pytest.fixture
def namespace(site: Site) -> str:
    return site.namespace()


def _store(site: Site, namespace: str, wanted: Object = FULL, *, finalizer: bool = False) -> str:
    """Have `wanted` stored in what is then an enabled namespace; returns its path."""
    body = copy.deepcopy(wanted)
    if finalizer:
        body["metadata"]["finalizers"] = [HOLD]
    created = site.must("POST", pods(namespace), body)
    site.enable(namespace)
    return pods(namespace, created["metadata"]["name"])


def _annotate(**values: str | None) -> MERGE:
    return {"metadata": {"annotations": values}}


@pytest.mark.parametrize(
    "body",
    [pod(), pod(None, generateName="x-"), FULL],
    ids=["plain", "generate-name", "of-a-set"],
)
def test_a_create_in_an_enabled_namespace_is_refused(
    site: Site, namespace: str, body: Object
) -> None:
    site.enable(namespace)
    answer = site.call("POST", pods(namespace), body)
    assert answer.code == 500
    assert "create.mutate.podstamp.dev" in answer.body["message"]


@pytest.mark.parametrize(
    "of", ["kube-system", "podstamp-system", "not-enabled", "opted-out", "role-set"]
)
def test_a_create_that_is_not_in_scope_passes(site: Site, of: str) -> None:
    enabled = {ENABLED: "true"}
    if of in ("kube-system", "podstamp-system"):
        namespace, body = site.namespace(enabled, of), pod()
    else:
        namespace = site.namespace({} if of == "not-enabled" else enabled)
        body = pod(
            labels={ENABLED: "false"} if of == "opted-out" else None,
            owners=[role_set()] if of == "role-set" else None,
        )
    assert site.call("POST", pods(namespace), body).ok


def _patch(site: Site, path: str, body: MERGE) -> Answer:
    return site.call("PATCH", path, body)


def _eviction(site: Site, path: str) -> Answer:
    name = path.rpartition("/")[2]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return site.call("POST", f"{path}/eviction", body)


def _binding(site: Site, path: str) -> Answer:
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    metadata = {"name": path.rpartition("/")[2]}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return site.call("POST", f"{path}/binding", body)


def _ephemeral(site: Site, path: str) -> Answer:
    stored = site.must("GET", path)
    stored["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "busybox:1"}]
    return site.call("PUT", f"{path}/ephemeralcontainers", stored)


def _kubelet_ends_it(site: Site, path: str) -> Answer:
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    uid = site.must("GET", path)["metadata"]["uid"]
    return site.call("DELETE", path, options | {"preconditions": {"uid": uid}})


def _fenced_delete(site: Site, path: str) -> Answer:
    assert isinstance(site.cluster, EmbeddedCluster)
    return site.call("DELETE", path, token=site.cluster.token_for(FENCED_USER, ["system:masters"]))


def _collection(site: Site, path: str) -> Answer:
    return site.call("DELETE", path.rpartition("/")[0])


PASSING: dict[str, Callable[[Site, str], Answer]] = {
    "status": lambda site, path: _patch(site, f"{path}/status", {"status": {"phase": "Failed"}}),
    "binding": _binding,
    "eviction": _eviction,
    "ephemeral-container": _ephemeral,
    "final-delete": _kubelet_ends_it,
    "delete": lambda site, path: site.call("DELETE", path),
    "delete-of-all": _collection,
    "delete-by-a-fenced-user": _fenced_delete,
    "label-of-others": lambda site, path: _patch(site, path, {"metadata": {"labels": {"a": "b"}}}),
    "annotation-of-others": lambda site, path: _patch(site, path, _annotate(note="y")),
    "finalizer": lambda site, path: _patch(site, path, {"metadata": {"finalizers": [HOLD]}}),
    "adapters": lambda site, path: _patch(site, path, _annotate(**{ADAPTERS: "chat"})),
    "digest": lambda site, path: _patch(site, path, _annotate(**{ADAPTERS_DIGEST: "x"})),
    "lora-modified": lambda site, path: _patch(site, path, _annotate(**{LORA_MODIFIED: "now"})),
    "nothing": lambda site, path: _patch(site, path, {}),
}


@pytest.mark.parametrize("write", PASSING.values(), ids=PASSING)
def test_what_others_do_to_a_stamped_pod_passes(
    site: Site, namespace: str, write: Callable[[Site, str], Answer]
) -> None:
    answer = write(site, _store(site, namespace))
    assert answer.ok, answer.body


@pytest.mark.parametrize("wanted", [FULL, pod("ps-3")], ids=["stamped", "unmanaged"])
def test_a_terminating_pod_is_let_go(site: Site, namespace: str, wanted: Object) -> None:
    path = _store(site, namespace, wanted, finalizer=True)
    site.must("DELETE", path)
    losing = {"labels": {MANAGED: None}, "annotations": {INCARNATION: None}}
    assert _patch(site, path, {"metadata": losing}).ok
    assert _patch(site, path, {"metadata": {"finalizers": []}}).ok
    assert site.call("GET", path).code == 404


REFUSED: dict[str, MERGE] = {
    "managed": {"metadata": {"labels": {MANAGED: None}}},
    "index": {"metadata": {"labels": {PODSET_INDEX: "9"}}},
    "enabled": {"metadata": {"labels": {ENABLED: "true"}}},
    "incarnation": _annotate(**{INCARNATION: OTHER}),
    "restore": _annotate(**{RESTORE: "true"}),
    "retired": _annotate(**{RETIRED: "suspended"}),
    "fence": _annotate(**{IF_INCARNATION: STORED}),
    "empty-fence": _annotate(**{IF_INCARNATION: ""}),
    "fence-with-adapters": _annotate(**{IF_INCARNATION: STORED, ADAPTERS: "chat"}),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_a_write_that_has_to_be_judged_waits_for_the_webhook(
    site: Site, namespace: str, body: MERGE
) -> None:
    answer = _patch(site, _store(site, namespace), body)
    assert answer.code == 500
    assert "update.mutate.podstamp.dev" in answer.body["message"]


def test_a_fence_on_a_terminating_pod_waits_for_the_webhook(site: Site, namespace: str) -> None:
    path = _store(site, namespace, finalizer=True)
    site.must("DELETE", path)
    answer = _patch(site, path, _annotate(**{IF_INCARNATION: STORED}))
    assert answer.code == 500


def test_a_leftover_fence_keeps_no_finalizer(site: Site, namespace: str) -> None:
    leftover = changed(pod("ps-3"), annotations={IF_INCARNATION: OTHER})
    path = _store(site, namespace, leftover, finalizer=True)
    site.must("DELETE", path)
    assert _patch(site, path, {"metadata": {"finalizers": []}}).ok


def test_create_can_be_switched_to_pass(site: Site, namespace: str) -> None:
    site.enable(namespace)
    _set_create_policy(site, "Ignore")
    try:
        created = site.must("POST", pods(namespace), pod())
    finally:
        _set_create_policy(site, "Fail")
    assert "annotations" not in created["metadata"]


def _set_create_policy(site: Site, policy: str) -> None:
    for kind in ("mutating", "validating"):
        path = f"{ADMISSION}/{kind}webhookconfigurations/podstamp"
        configuration = site.must("GET", path)
        for entry in configuration["webhooks"]:
            if entry["name"].startswith("create."):
                entry["failurePolicy"] = policy
        site.must("PUT", path, configuration)
