"""Pod statuses in the shape that a kubelet writes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.standins import pod_status

Json = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, 999, UTC)
INSTANT = "2026-01-02T03:04:05Z"


def pod(status: Json | None = None, **spec: Any) -> Json:
    containers = [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": containers, **spec},
        "status": status or {},
    }


def condition(status: Json, kind: str) -> str | None:
    return next((c["status"] for c in status["conditions"] if c["type"] == kind), None)


def running(**spec: Any) -> Json:
    return pod_status.running(pod(**spec), "127.0.0.9", "127.0.0.1", NOW)


def test_a_running_pod_is_ready_and_has_an_address_and_containers() -> None:
    patch = running(initContainers=[{"name": "i"}])
    assert patch["metadata"] == {"uid": "u"}
    status = patch["status"]
    assert (status["phase"], status["podIP"]) == ("Running", "127.0.0.9")
    assert status["podIPs"] == [{"ip": "127.0.0.9"}]
    assert status["startTime"] == INSTANT
    for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"):
        assert condition(status, kind) == "True"
    first, second = status["containerStatuses"]
    assert first == {
        "name": "a",
        "image": "i",
        "imageID": first["imageID"],
        "containerID": first["containerID"],
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": INSTANT}},
        "lastState": {},
    }
    assert first["containerID"].startswith("containerd://")
    assert first["containerID"] != second["containerID"]
    [init] = status["initContainerStatuses"]
    assert init["state"]["terminated"]["exitCode"] == 0


def test_an_unmet_readiness_gate_keeps_a_running_pod_unready() -> None:
    status = running(readinessGates=[{"conditionType": "g"}])["status"]
    assert condition(status, "ContainersReady") == "True"
    assert condition(status, "Ready") == "False"


def test_a_pod_without_a_sandbox_says_so() -> None:
    status = pod_status.creating(pod(), "127.0.0.1", NOW)["status"]
    assert status["phase"] == "Pending"
    assert "podIP" not in status
    assert condition(status, "PodReadyToStartContainers") == "False"
    states = [each["state"] for each in status["containerStatuses"]]
    assert states == [{"waiting": {"reason": "ContainerCreating"}}] * 2


def test_a_rejected_pod_has_no_container_statuses() -> None:
    status = pod_status.rejected(pod(), NOW)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert "containerStatuses" not in status


@pytest.mark.parametrize(("code", "why"), [(0, "Completed"), (137, "Error")])
def test_an_ended_pod_has_terminated_containers(code: int, why: str) -> None:
    started = pod(running()["status"])
    status = pod_status.terminal(started, "Failed", code, NOW)["status"]
    assert condition(status, "Ready") == "False"
    assert "podIP" not in status
    for each in status["containerStatuses"]:
        ended = each["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (code, why)
        assert ended["containerID"] == each["containerID"]


def test_a_container_may_be_left_running_in_an_ended_pod() -> None:
    started = pod(running()["status"])
    status = pod_status.terminal(started, "Failed", 1, NOW, still_running=["b"])["status"]
    assert [next(iter(each["state"])) for each in status["containerStatuses"]] == [
        "terminated",
        "running",
    ]


def test_an_eviction_takes_the_address_away_in_the_same_write() -> None:
    status = pod_status.terminal(
        pod(), "Failed", 137, NOW, reason="Evicted", message="disk", drop_address=True
    )["status"]
    assert (status["podIP"], status["podIPs"]) == (None, None)
    assert (status["reason"], status["message"]) == ("Evicted", "disk")


def test_a_restart_is_a_new_container_of_the_same_pod() -> None:
    started = pod(running()["status"])
    before = started["status"]["containerStatuses"]
    after = pod_status.restarted(started, "b", NOW)["status"]["containerStatuses"]
    assert after[0] == before[0]
    assert after[1]["restartCount"] == 1
    assert after[1]["containerID"] != before[1]["containerID"]
    assert after[1]["lastState"]["terminated"]["containerID"] == before[1]["containerID"]


def test_the_time_of_a_transition_stays_while_the_status_does() -> None:
    started = pod(running()["status"])
    later = datetime(2026, 1, 3, tzinfo=UTC)
    same = pod_status.ready(started, True, later)["status"]
    assert {c["lastTransitionTime"] for c in same["conditions"]} == {INSTANT}
    changed = pod_status.ready(started, False, later)["status"]
    assert {c["lastTransitionTime"] for c in changed["conditions"]} == {"2026-01-03T00:00:00Z"}
    assert [each["ready"] for each in changed["containerStatuses"]] == [False, False]
