"""Every row of the table over HTTPS: API server, matchConditions, TLS, the webhook's process."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.apiserver import EmbeddedCluster
from tests.webhook.builders import Object, pod, role_set
from tests.webhook.outcomes import Outcome, problems
from tests.webhook.rows import FENCED_GROUP, FENCED_USER, ROWS, Neighbour, Row
from tests.webhook.site import BYPASS, HOLD, Answer, Site, full_site, install_webhooks, pods
from webhook.config import FencedDeleters
from webhook.entries import delete_entry
from webhook.stamps import ENABLED, INCARNATION, MANAGED, incarnation_time

SEEN_WITHIN_S = 60.0
DELETERS = {"users": [FENCED_USER], "groups": [FENCED_GROUP]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with full_site(folder, config={"fencedDeleters": DELETERS}) as full:
        full.uninstall_webhooks()
        entry = yaml.safe_load(delete_entry(msgspec.convert(DELETERS, FencedDeleters)))
        install_webhooks(full, (folder / "certs" / "ca.crt").read_bytes(), extra=[entry])
        yield full


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_the_api_server_answers_as_the_row_says(site: Site, row: Row) -> None:
    namespace = site.namespace(name="" if row.namespace == "models" else row.namespace)
    for neighbour in row.neighbours:
        _place(site, namespace, neighbour.pod, neighbour)
    stored = _place(site, namespace, row.stored, row) if row.stored else None
    site.enable(namespace, **({BYPASS: "true"} if row.bypass else {}))
    if row.neighbours:
        # The webhook's store follows the server in its own time.
        deadline = time.monotonic() + SEEN_WITHIN_S
        while found := problems(row, _write(site, namespace, row, stored, dry_run=True)):
            assert time.monotonic() < deadline, found
    assert problems(row, _write(site, namespace, row, stored)) == []


def _place(site: Site, namespace: str, pod: Object, how: Neighbour | Row) -> Object:
    """Have `pod` stored as it is: its namespace is not enabled yet, so nobody judges it."""
    body = copy.deepcopy(pod)
    name = body["metadata"]["name"]
    if how.terminating:
        body["metadata"]["finalizers"] = [HOLD]
    site.must("POST", pods(namespace), body)
    if isinstance(how, Neighbour):
        site.must("PATCH", pods(namespace, name, "/status"), {"status": {"phase": how.phase}})
    if how.terminating:
        site.must("DELETE", pods(namespace, name))
    return site.must("GET", pods(namespace, name))


def _write(
    site: Site, namespace: str, row: Row, stored: Object | None, *, dry_run: bool = False
) -> Outcome:
    assert isinstance(site.cluster, EmbeddedCluster)
    token = site.cluster.token_for(row.user, ["system:masters", *row.groups])
    params = {"dryRun": "All"} if dry_run else {}
    if row.write is None:
        assert stored is not None
        metadata: Object = stored["metadata"]
        options = {"preconditions": {"uid": metadata["uid"]}} if row.preconditions else {}
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"} | options
        path = pods(namespace, metadata["name"])
        return _outcome(site.call("DELETE", path, body, token=token, **params), deleted=True)
    body = copy.deepcopy(row.write)
    if stored is None:
        return _outcome(site.call("POST", pods(namespace), body, token=token, **params))
    new = copy.deepcopy(stored)
    for key in ("labels", "annotations", "finalizers"):
        if key in body["metadata"]:
            new["metadata"][key] = body["metadata"][key]
        elif key != "finalizers":
            new["metadata"].pop(key, None)
    path = pods(namespace, stored["metadata"]["name"])
    return _outcome(site.call("PUT", path, new, token=token, **params))


def _outcome(answer: Answer, *, deleted: bool = False) -> Outcome:
    body = answer.body
    # The check of the name is the server's own, and comes after admission.
    if answer.ok or body.get("reason") == "AlreadyExists":
        stored = None if deleted or not answer.ok else body
        return Outcome(200, warnings=answer.warnings, stored=stored, now_ns=time.time_ns())
    return Outcome(body["code"], body["reason"], body["message"], answer.warnings)


def test_an_enabled_namespace_is_the_only_one_that_is_judged(site: Site) -> None:
    namespace = site.namespace({ENABLED: "false"})
    row = next(row for row in ROWS if row.id == "copied-manifest-gets-an-incarnation-of-its-own")
    outcome = _write(site, namespace, row, None)
    assert outcome.stored is not None
    assert row.write is not None
    assert outcome.stored["metadata"]["annotations"] == row.write["metadata"]["annotations"]


def test_a_pod_that_was_left_out_is_adopted_by_its_label(tmp_path: Path) -> None:
    """Webhook and policies together, as installed; both hold the label of a stamped pod."""
    with full_site(tmp_path, policies=True) as site:
        namespace = site.namespace({ENABLED: "true"})
        for stored in (pod("r1", owners=[role_set()]), pod("r2", labels={ENABLED: "false"})):
            name = stored["metadata"]["name"]
            path = pods(namespace, name)
            site.must("POST", pods(namespace), stored)
            managed = site.must("PATCH", path, {"metadata": {"labels": {MANAGED: "true"}}})
            assert INCARNATION not in managed["metadata"].get("annotations", {})
            adopted = site.must("PATCH", path, {"metadata": {"labels": {ENABLED: "true"}}})
            assert incarnation_time(adopted["metadata"]["annotations"][INCARNATION])
            dropped = site.call("PATCH", path, {"metadata": {"labels": {ENABLED: None}}})
            assert dropped.code == 422
