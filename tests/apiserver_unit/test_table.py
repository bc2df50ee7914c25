"""What `kubectl get` prints of pods, events and ages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.apiserver.kinds import builtin_resources
from tests.apiserver.table import age, columns_of, json_path

Object = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

AGES: list[Any] = [
    pytest.param(0, "0s"),
    pytest.param(119, "119s"),
    pytest.param(120, "2m"),
    pytest.param(150, "2m30s"),
    pytest.param(600, "10m"),
    pytest.param(3 * 3600, "3h"),
    pytest.param(3 * 3600 + 60, "3h1m"),
    pytest.param(8 * 3600, "8h"),
    pytest.param(48 * 3600, "2d"),
    pytest.param(50 * 3600, "2d2h"),
    pytest.param(8 * 86400, "8d"),
    pytest.param(800 * 86400, "2y"),
    pytest.param(-1, "0s"),
    pytest.param(-60, "<invalid>"),
]


@pytest.mark.parametrize(("seconds", "shown"), AGES)
def test_age(seconds: int, shown: str) -> None:
    then = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age(then, NOW) == shown


def test_no_time_is_unknown() -> None:
    assert age(None, NOW) == "<unknown>"


def _cells(plural: str, obj: Object, group: str = "") -> Object:
    resource = next(r for r in builtin_resources() if (r.group, r.plural) == (group, plural))
    return {column.name: column.value(obj) for column in columns_of(resource)}


def _pod(metadata: Object | None = None, spec: Object | None = None, **status: Any) -> Object:
    base = {"containers": [{"name": "a"}, {"name": "b"}]}
    return {
        "metadata": {"name": "p", **(metadata or {})},
        "spec": {**base, **(spec or {})},
        "status": status,
    }


def _containers(*states: Object, ready: bool = False) -> list[Object]:
    return [
        {"name": f"c{number}", "ready": ready, "restartCount": 1, "state": state}
        for number, state in enumerate(states)
    ]


RUNNING: Object = {"running": {}}
PODS: list[Any] = [
    pytest.param(_pod(phase="Pending"), "Pending", "0/2", id="pending"),
    pytest.param(
        _pod(phase="Running", containerStatuses=_containers(RUNNING, RUNNING, ready=True)),
        "Running",
        "2/2",
        id="running",
    ),
    pytest.param(
        _pod(
            phase="Running",
            containerStatuses=_containers({"waiting": {"reason": "CrashLoopBackOff"}}, RUNNING),
        ),
        "CrashLoopBackOff",
        "0/2",
        id="waiting",
    ),
    pytest.param(
        _pod(phase="Failed", containerStatuses=_containers({"terminated": {"reason": "Error"}})),
        "Error",
        "0/2",
        id="failed",
    ),
    pytest.param(
        _pod(phase="Failed", containerStatuses=_containers({"terminated": {"exitCode": 3}})),
        "ExitCode:3",
        "0/2",
        id="exit code",
    ),
    pytest.param(
        _pod(phase="Failed", containerStatuses=_containers({"terminated": {"signal": 9}})),
        "Signal:9",
        "0/2",
        id="signal",
    ),
    pytest.param(_pod(phase="Failed", reason="Evicted"), "Evicted", "0/2", id="evicted"),
    pytest.param(
        _pod({"deletionTimestamp": "2026-01-01T00:00:00Z"}, phase="Running"),
        "Terminating",
        "0/2",
        id="terminating",
    ),
    pytest.param(
        _pod({"deletionTimestamp": "2026-01-01T00:00:00Z"}, phase="Running", reason="NodeLost"),
        "Unknown",
        "0/2",
        id="node lost",
    ),
    pytest.param(
        _pod({"deletionTimestamp": "2026-01-01T00:00:00Z"}, phase="Failed"),
        "Failed",
        "0/2",
        id="terminal and terminating",
    ),
    pytest.param(
        _pod(
            spec={"initContainers": [{}, {}]},
            phase="Pending",
            initContainerStatuses=_containers({"terminated": {"exitCode": 0}}, RUNNING),
        ),
        "Init:1/2",
        "0/2",
        id="second init container",
    ),
    pytest.param(
        _pod(
            spec={"initContainers": [{}]},
            phase="Pending",
            initContainerStatuses=_containers({"waiting": {"reason": "ImagePullBackOff"}}),
        ),
        "Init:ImagePullBackOff",
        "0/2",
        id="init container waits",
    ),
    pytest.param(
        _pod(
            spec={"initContainers": [{}]},
            phase="Failed",
            initContainerStatuses=_containers({"terminated": {"exitCode": 2}}),
        ),
        "Init:ExitCode:2",
        "0/2",
        id="init container failed",
    ),
    pytest.param(
        _pod(
            phase="Running",
            conditions=[{"type": "Ready", "status": "True"}],
            containerStatuses=[
                *_containers({"terminated": {"reason": "Completed"}}),
                *_containers(RUNNING, ready=True),
            ],
        ),
        "Running",
        "1/2",
        id="one completed",
    ),
    pytest.param(
        _pod(
            phase="Pending",
            conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}],
        ),
        "SchedulingGated",
        "0/2",
        id="gated",
    ),
]


@pytest.mark.parametrize(("pod", "status", "ready"), PODS)
def test_pods(pod: Object, status: str, ready: str) -> None:
    cells = _cells("pods", pod)
    assert (cells["Status"], cells["Ready"]) == (status, ready)


def test_readiness_gates_are_counted() -> None:
    gates = {"readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]}
    held = [{"type": "y", "status": "True"}, {"type": "x", "status": "False"}]
    assert _cells("pods", _pod(spec=gates, conditions=held))["Readiness Gates"] == "1/2"
    assert _cells("pods", _pod())["Readiness Gates"] == "<none>"


def test_an_event_shows_the_same_in_both_shapes() -> None:
    core = {
        "metadata": {"name": "e"},
        "type": "Normal",
        "reason": "R",
        "message": "  said\n",
        "involvedObject": {"kind": "Pod", "name": "p"},
        "source": {"component": "kubelet", "host": "n"},
        "count": 4,
    }
    new = {
        "metadata": {"name": "e"},
        "type": "Normal",
        "reason": "R",
        "note": "said",
        "regarding": {"kind": "Pod", "name": "p"},
        "reportingController": "c",
        "series": {"count": 9, "lastObservedTime": "2020-01-01T00:00:00Z"},
    }
    cells = _cells("events", core)
    assert (cells["Object"], cells["Message"], cells["Count"]) == ("pod/p", "said", 4)
    assert (cells["Source"], cells["Last Seen"]) == ("kubelet, n", "<unknown>")
    cells = _cells("events", new, "events.k8s.io")
    assert (cells["Object"], cells["Message"], cells["Count"]) == ("pod/p", "said", 9)
    assert cells["Source"] == "c"
    assert cells["Last Seen"].endswith(("y", "d"))


@pytest.mark.parametrize(
    ("plural", "group", "obj", "shown"),
    [
        pytest.param(
            "nodes",
            "",
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]},
             "spec": {"unschedulable": True}},
            {"Status": "Ready,SchedulingDisabled"},
            id="node",
        ),
        pytest.param(
            "nodes",
            "",
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
            {"Status": "NotReady"},
            id="lost node",
        ),
        pytest.param("nodes", "", {}, {"Status": "Unknown"}, id="new node"),
        pytest.param(
            "services",
            "",
            {"spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
            {"Port(s)": "80/TCP,53/UDP", "Cluster-IP": "<none>"},
            id="service",
        ),
        pytest.param(
            "endpointslices",
            "discovery.k8s.io",
            {"endpoints": [{"addresses": ["a", "b"]}, {"addresses": ["c"]}, {"addresses": ["d"]}]},
            {"Endpoints": "a,b,c + 1 more..."},
            id="endpoints",
        ),
        pytest.param(
            "endpointslices", "discovery.k8s.io", {}, {"Endpoints": "<unset>"}, id="no endpoints"
        ),
        pytest.param(
            "secrets", "", {"type": "Opaque", "data": {"a": "", "b": ""}}, {"Data": 2}, id="secret"
        ),
        pytest.param(
            "deployments",
            "apps",
            {"spec": {"replicas": 3}, "status": {"readyReplicas": 2}},
            {"Ready": "2/3", "Available": "0"},
            id="deployment",
        ),
    ],
)  # fmt: skip
def test_other_kinds(plural: str, group: str, obj: Object, shown: Object) -> None:
    cells = _cells(plural, {"metadata": {"name": "x"}, **obj}, group)
    assert {name: cells[name] for name in shown} == shown


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param(".spec.size", 3, id="field"),
        pytest.param(".spec.list[1]", "b", id="index"),
        pytest.param(".spec.list[9]", None, id="index past the end"),
        pytest.param('.status.conditions[?(@.type=="Ready")].status', "True", id="filter"),
        pytest.param('.status.conditions[?(@.type=="Other")].status', None, id="filter in vain"),
        pytest.param(".nothing.here", None, id="nothing"),
    ],
)
def test_paths_of_printer_columns(path: str, found: object) -> None:
    obj = {
        "spec": {"size": 3, "list": ["a", "b"]},
        "status": {"conditions": [{"type": "X"}, {"type": "Ready", "status": "True"}]},
    }
    assert json_path(path)(obj) == found
