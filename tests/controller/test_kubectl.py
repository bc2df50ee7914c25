"""The parts of the kubectl commands that need no server."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from controller.kubectl_cluster import ask_leader, list_pods
from controller.kubectl_output import duration, print_rows, table
from controller.kubectl_writes import NotApplicable, NotDone, adoption, retirement, write_one
from kube.errors import Unreachable
from tests.clock import FakeClock
from tests.controller.fakeapi import FakeApi, pod_path, status
from tests.controller.pods import as_pod, incarnation, owner, pod
from webhook import stamps

pytestmark = pytest.mark.anyio

LEASE = "/apis/coordination.k8s.io/v1/namespaces/podstamp-system/leases/podstamp-controller"
PROXY = "/api/v1/namespaces/podstamp-system/pods/podstamp-controller-7d9-x2x:8080/proxy"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "now"),
        (0.2, "1s"),
        (59, "59s"),
        (60, "1m"),
        (250, "4m10s"),
        (3600, "1h"),
        (7500, "2h5m"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_table_is_aligned_and_shows_absent_values() -> None:
    rows: list[dict[str, Any]] = [{"a": "x", "b": None}, {"a": "longer", "b": True}]
    assert table(rows, {"A": "a", "B": "b"}).splitlines() == [
        "A        B",
        "x        -",
        "longer   yes",
    ]


@pytest.mark.parametrize(
    ("output", "text"), [("json", "[]\n"), ("yaml", "[]\n"), ("table", "none\n")]
)
def test_nothing_is_an_empty_list_for_programs_and_a_word_for_people(
    capsys: pytest.CaptureFixture[str], output: str, text: str
) -> None:
    print_rows([], {"A": "a"}, output=output, empty="none")
    assert capsys.readouterr().out == text


def test_a_retirement_is_fenced_by_incarnation_and_uid() -> None:
    write = retirement(as_pod(pod(stamp=incarnation(1))), "suspended")
    assert write.patch == {
        "metadata": {
            "uid": "uid-llm-web-0",
            "annotations": {stamps.IF_INCARNATION: incarnation(1), stamps.RETIRED: "suspended"},
        }
    }


def test_what_is_retired_already_is_left_as_it_is() -> None:
    since = {stamps.RETIRED_AT: "2026-01-01T00:00:00Z"}
    retired = as_pod(pod(annotations={stamps.RETIRED: "replaced"} | since))
    assert retirement(retired, "suspended").patch is None


def test_a_retirement_that_no_webhook_saw_is_written_again_in_its_own_word() -> None:
    patch = retirement(as_pod(pod(annotations={stamps.RETIRED: "replaced"})), "suspended").patch
    assert patch is not None
    assert patch["metadata"]["annotations"][stamps.RETIRED] == "replaced"


@pytest.mark.parametrize("document", [pod(managed=False), pod(stamp=None)], ids=["label", "stamp"])
def test_a_pod_that_is_not_managed_cannot_be_retired(document: dict[str, Any]) -> None:
    with pytest.raises(NotApplicable, match="kubectl podstamp adopt web-0 -n llm"):
        retirement(as_pod(document), "suspended")


def test_adoption_adds_the_label_or_an_empty_incarnation_for_this_version_alone() -> None:
    identity = {"uid": "uid-llm-web-0", "resourceVersion": "10"}
    assert adoption(as_pod(pod(managed=False, stamp=None))).patch == {
        "metadata": {**identity, "labels": {stamps.MANAGED: "true"}}
    }
    assert adoption(as_pod(pod(stamp=None))).patch == {
        "metadata": {**identity, "annotations": {stamps.INCARNATION: ""}}
    }
    assert adoption(as_pod(pod())).patch is None
    with pytest.raises(NotApplicable, match="left out"):
        adoption(as_pod(pod(managed=False, stamp=None, labels={stamps.ENABLED: "false"})))


def test_pods_of_a_role_set_are_adopted_only_if_they_say_so() -> None:
    kind = {"apiVersion": "orchestration.aibrix.ai/v1alpha1", "kind": "RoleSet"}
    document = pod(managed=False, stamp=None, owners=(owner(kind),))
    with pytest.raises(NotApplicable, match="RoleSet"):
        adoption(as_pod(document))
    document["metadata"]["labels"][stamps.ENABLED] = "true"
    assert adoption(as_pod(document)).patch is not None


def test_a_pod_that_is_being_deleted_is_left_alone() -> None:
    assert retirement(as_pod(pod(deleted=True)), "suspended").patch is None
    assert adoption(as_pod(pod(deleted=True, managed=False, stamp=None))).patch is None


async def test_a_refused_write_never_reaches_the_pods_successor(clock: FakeClock) -> None:
    api = FakeApi(clock)
    api.put(pod(stamp=incarnation(1)))

    def replace(verb: str, path: str) -> httpx.Response | None:
        if verb != "PATCH":
            return None
        api.put(pod(uid="successor", stamp=incarnation(2)))
        return status(409, "Conflict")

    api.on_call = replace
    with pytest.raises(NotDone, match="was replaced meanwhile"):
        await write_one(api.client, "llm", "web-0", lambda p: retirement(p, "suspended"), "retired")
    assert [verb for verb, _ in api.calls].count("PATCH") == 1


async def test_a_write_that_no_webhook_saw_is_an_error(clock: FakeClock) -> None:
    api = FakeApi(clock)
    api.put(pod(managed=False, stamp=None))
    stored = api.objects[pod_path("llm", "web-0")]
    api.on_call = lambda verb, path: httpx.Response(200, json=stored) if verb == "PATCH" else None
    with pytest.raises(NotDone, match="written but not stamped"):
        await write_one(api.client, "llm", "web-0", adoption, "adopted")


async def test_the_leader_is_asked_through_the_proxy_of_its_pod(clock: FakeClock) -> None:
    api = FakeApi(clock)
    api.objects[LEASE] = {"spec": {"holderIdentity": "podstamp-controller-7d9-x2x_8c1f"}}
    api.objects[f"{PROXY}/status"] = {"leader": True, "pods": []}
    assert await ask_leader(api.client, None, "podstamp-system", "/status") == {
        "leader": True,
        "pods": [],
    }


@pytest.mark.parametrize(
    ("lease", "answer", "words"),
    [
        (None, None, "does not answer"),
        ({"spec": {"holderIdentity": ""}}, None, "nobody holds"),
        ({"spec": {"holderIdentity": "podstamp-controller-7d9-x2x_1"}}, None, "does not answer"),
        (
            {"spec": {"holderIdentity": "podstamp-controller-7d9-x2x_1"}},
            {"leader": False, "identity": "x2x"},
            "x2x is not the leader",
        ),
    ],
    ids=["no-lease", "released", "no-pod", "follower"],
)
async def test_why_there_is_no_answer_is_said(
    clock: FakeClock, lease: Any, answer: Any, words: str
) -> None:
    api = FakeApi(clock)
    if lease:
        api.objects[LEASE] = lease
    if answer:
        api.objects[f"{PROXY}/status"] = answer
    with pytest.raises(Unreachable, match=words):
        await ask_leader(api.client, None, "podstamp-system", "/status")


async def test_only_managed_pods_are_listed(clock: FakeClock) -> None:
    api = FakeApi(clock)
    seen: list[httpx.URL] = []
    api.on_request = seen.append
    await list_pods(api.client, "llm", "tier=a")
    [url] = seen
    assert url.params["labelSelector"] == "podstamp.dev/managed=true,tier=a"
