"""kubectl podstamp against a server with the webhook: plan, status, retire, adopt.

Runs on the embedded API server and, with --control-plane, on the real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controller.kubectl import command
from controller.kubectl_writes import NotDone
from kube.errors import ConfigError
from tests.cluster import Cluster
from tests.controller.installed import INCARNATION, There, write_yaml
from tests.controller.running import LIVE, SHORT_LEASE
from tests.e2e.pods import Manifest, pod, text
from tests.e2e.waiting import eventually
from tests.launch import Launched, launch_controller

RETIRED, RETIRED_AT = "podstamp.dev/retired", "podstamp.dev/retired-at"


class Commands:
    """Runs commands in this process and keeps what they print."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._kubeconfig = cluster.kubeconfig
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        found = command([*arguments, "--kubeconfig", str(self._kubeconfig)])
        out, self.err = self._capsys.readouterr()
        assert found == code, (out, self.err)
        return out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "-o", "json", code=code))


@pytest.fixture
def podstamp(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(cluster, capsys)


def create(there: There, *manifests: Manifest) -> None:
    there.do("create", "-f", "-", stdin=text(*manifests))


def stored_of(there: There, name: str) -> dict[str, str]:
    document = json.loads(there.do("get", "pod", name, "-o", "json"))
    found: dict[str, str] = document["metadata"].get("annotations", {})
    return found


def set_pod(there: There, index: int) -> Manifest:
    document = pod(f"web-{index}", there.name)
    document["metadata"]["ownerReferences"] = [there.podset()]
    return document


def test_plan_prints_what_would_go_and_with_all_what_stays_and_why(
    podstamp: Commands, there: There
) -> None:
    create(there, *(set_pod(there, index) for index in range(3)))
    there.end("web-1", "Failed")
    there.end("web-2", "Running")
    stamps = there.incarnations()
    [line] = podstamp.json("plan", "-n", there.name)
    assert {key: line[key] for key in ("namespace", "pod", "incarnation", "verdict", "shape")} == {
        "namespace": there.name,
        "pod": "web-1",
        "incarnation": stamps["web-1"],
        "verdict": "reap",
        "shape": "terminal",
    }
    assert line["uid"]
    assert "Failed" in line["reason"]
    lines = podstamp.json("plan", "--all", "-n", there.name)
    assert [(line["pod"], line["verdict"]) for line in lines] == [
        ("web-0", "keep"),
        ("web-1", "reap"),
        ("web-2", "keep"),
    ]
    assert all(line["reason"] for line in lines)
    assert yaml.safe_load(podstamp("plan", "--all", "-n", there.name, "-o", "yaml")) == lines
    table = podstamp("plan", "--all", "-n", there.name).splitlines()
    assert table[0].split() == ["NAMESPACE", "POD", "VERDICT", "SHAPE", "WHEN", "REASON"]
    assert "now (dry run)" in table[2]
    assert there.names() == {"web-0", "web-1", "web-2"}


def test_plan_without_anything_to_reap_says_so_and_exits_0(
    podstamp: Commands, there: There
) -> None:
    assert podstamp("plan", "-n", there.name) == "nothing to reap\n"
    assert podstamp("plan", "--all", "-n", there.name) == "no managed pods\n"
    assert podstamp.json("plan", "-n", there.name) == []


def test_plan_follows_the_configuration_that_is_given(
    podstamp: Commands, there: There, tmp_path: Path
) -> None:
    create(there, set_pod(there, 0))
    there.end("web-0", "Succeeded")
    kinds = {"terminal": {"ownerKinds": ["StatefulSet"], "dryRun": False, "holdSeconds": 90}}
    file = write_yaml(tmp_path / "controller.yaml", kinds)
    [line] = podstamp.json("plan", "--all", "-n", there.name, "--config", str(file))
    assert line["verdict"] == "keep"
    assert "PodSet.orchestration.aibrix.ai" in line["reason"]
    kinds["terminal"]["ownerKinds"] = ["PodSet"]
    write_yaml(file, kinds)
    table = podstamp("plan", "-n", there.name, "--config", str(file))
    assert "after 1m30s" in table
    assert "dry run" not in table


def test_plan_says_that_records_cannot_be_read_and_exits_1(
    podstamp: Commands, there: There, tmp_path: Path
) -> None:
    create(there, pod("run", there.name), set_pod(there, 0))
    for name in ("run", "web-0"):
        there.end(name, "Failed")
    postgres = {"dsn": "postgresql://nobody@127.0.0.1:1/none"}
    config = {"retired": {"enabled": True, "source": "postgres", "postgres": postgres}}
    file = write_yaml(tmp_path / "controller.yaml", config)
    out = podstamp("plan", "--all", "-n", there.name, "--config", str(file), code=1)
    assert "unreadable" in out
    assert "web-0" in out
    assert podstamp.err.startswith("error: PostgreSQL:")
    assert podstamp.err.count("\n") == 1


def test_retire_marks_this_life_and_keeps_the_first_state(podstamp: Commands, there: There) -> None:
    create(there, pod("one", there.name), pod("two", there.name))
    stamps = there.incarnations()
    rows = podstamp.json("retire", "one", "pod/two", "-n", there.name, "--state", "suspended")
    assert [(row["pod"], row["result"]) for row in rows] == [("one", "retired"), ("two", "retired")]
    for name in ("one", "two"):
        stored = stored_of(there, name)
        assert stored[RETIRED] == "suspended"
        assert stored[RETIRED_AT] in json.dumps(rows)
        assert stored[INCARNATION] == stamps[name]
        assert "podstamp.dev/if-incarnation" not in stored
    out = podstamp("retire", "one", "-n", there.name, "--state", "replaced")
    assert "already suspended, which stays" in out
    assert stored_of(there, "one")[RETIRED] == "suspended"


def test_retire_goes_on_after_a_pod_that_does_not_exist(podstamp: Commands, there: There) -> None:
    create(there, pod("one", there.name))
    out = podstamp("retire", "absent", "one", "-n", there.name, code=1)
    assert "absent" in podstamp.err
    assert "one" in out
    assert stored_of(there, "one")[RETIRED] == "retired"


def test_retire_takes_selectors(podstamp: Commands, there: There) -> None:
    for name, tier in (("one", "a"), ("two", "a"), ("three", "b")):
        document = pod(name, there.name)
        document["metadata"].setdefault("labels", {})["tier"] = tier
        create(there, document)
    rows = podstamp.json("retire", "-l", "tier=a", "-n", there.name)
    assert {row["pod"] for row in rows} == {"one", "two"}
    assert RETIRED not in stored_of(there, "three")
    assert podstamp("retire", "-l", "tier=none", "-n", there.name) == "no pods found\n"


@pytest.fixture
def old_pod(there: There, kubectl: Any) -> str:
    """A pod that is older than podstamp here: created before its namespace was enabled."""
    kubectl("label", "namespace", there.name, "podstamp.dev/enabled-")
    create(there, pod("old", there.name))
    assert INCARNATION not in stored_of(there, "old")
    kubectl("label", "namespace", there.name, "podstamp.dev/enabled=true")
    return "old"


def test_adopt_has_an_old_pod_stamped_and_does_it_once(
    podstamp: Commands, there: There, old_pod: str
) -> None:
    podstamp("retire", old_pod, "-n", there.name, code=1)
    assert f"kubectl podstamp adopt {old_pod}" in podstamp.err
    [row] = podstamp.json("adopt", old_pod, "-n", there.name)
    assert row["result"] == "adopted"
    stamp = stored_of(there, old_pod)[INCARNATION]
    assert stamp in row["detail"]
    [row] = podstamp.json("adopt", "--all", "-n", there.name)
    assert row["result"] == "unchanged"
    assert stored_of(there, old_pod)[INCARNATION] == stamp
    podstamp("retire", old_pod, "-n", there.name)


def test_pods_that_were_not_named_are_skipped_where_a_write_does_not_apply(
    podstamp: Commands, there: There, old_pod: str
) -> None:
    there.do("label", "pod", old_pod, "podstamp.dev/enabled=false")
    create(there, pod("new", there.name))
    rows = podstamp.json("adopt", "--all", "-n", there.name)
    assert [(row["pod"], row["result"]) for row in rows] == [
        ("new", "unchanged"),
        (old_pod, "skipped"),
    ]
    podstamp("adopt", old_pod, "-n", there.name, code=1)
    assert "podstamp.dev/enabled=false" in podstamp.err


def test_adopt_refuses_a_namespace_that_is_not_enabled_before_it_writes(
    podstamp: Commands, there: There, old_pod: str, kubectl: Any
) -> None:
    kubectl("label", "namespace", there.name, "podstamp.dev/enabled-")
    with pytest.raises(NotDone, match=f"kubectl label namespace {there.name}"):
        podstamp("adopt", old_pod, "-n", there.name)
    document = json.loads(there.do("get", "pod", old_pod, "-o", "json"))
    assert "podstamp.dev/managed" not in document["metadata"].get("labels", {})


@pytest.mark.parametrize(
    "arguments",
    [
        ("retire",),
        ("retire", "one", "-l", "a=b"),
        ("retire", "one", "--all"),
        ("adopt",),
        ("retire", "one", "-A"),
        ("retire", "one", "--state", "two words"),
        ("retire", "one", "--state", ""),
    ],
    ids=" ".join,
)
def test_a_call_that_is_not_clear_is_a_usage_error(
    podstamp: Commands, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError):
        podstamp(*arguments)


@pytest.fixture
def leader(cluster: Cluster, tmp_path: Path) -> Iterator[Launched]:
    config = tmp_path / "controller.yaml"
    config.write_text(
        LIVE + SHORT_LEASE + "retired: {enabled: true, holdSeconds: 600, intervalSeconds: 1}\n"
    )
    process = launch_controller(cluster.kubeconfig, tmp_path, config=config)
    yield process
    assert process.stop() == 0, process.tail()


def test_status_is_the_leaders_own_knowledge_with_the_hold_time_left(
    podstamp: Commands, there: There, leader: Launched
) -> None:
    create(there, set_pod(there, 0), set_pod(there, 1), pod("run", there.name))
    there.end("web-0", "Running")
    stamps = there.incarnations()
    podstamp("retire", "run", "-n", there.name)
    there.terminate("run", "Failed")

    def lines() -> dict[str, dict[str, Any]]:
        rows = podstamp.json("status", "-n", there.name, "--controller", leader.health_url)
        return {row["pod"]: row for row in rows}

    eventually(lambda: lines()["run"]["verdict"] == "reap", "the leader has judged the pod")
    found = lines()
    assert found["run"]["shape"] == "terminal-retired"
    assert 500 < found["run"]["remainingSeconds"] <= 600
    assert found["web-0"] == {
        "namespace": there.name,
        "pod": "web-0",
        "uid": found["web-0"]["uid"],
        "set": "web",
        "index": "0",
        "incarnation": stamps["web-0"],
        "phase": "Running",
        "verdict": "keep",
        "shape": None,
        "reason": "running: it runs",
        "remainingSeconds": None,
        "hold": "-",
    }
    table = podstamp("status", "-n", there.name, "--controller", leader.health_url)
    header, *rows = table.splitlines()
    assert header.split() == [
        *("NAMESPACE", "POD", "SET", "INDEX", "INCARNATION", "PHASE", "VERDICT", "HOLD")
    ]
    assert any("run" in row and "reap" in row and "m" in row.split()[-1] for row in rows)


def test_status_without_an_answer_shows_unknown_and_a_warning(
    podstamp: Commands, there: There
) -> None:
    create(there, set_pod(there, 0))
    [row] = podstamp.json("status", "-n", there.name, "--controller", "http://127.0.0.1:1")
    assert (row["pod"], row["index"], row["verdict"]) == ("web-0", "0", "unknown")
    assert row["remainingSeconds"] == "unknown"
    assert podstamp.err.startswith("warning: http://127.0.0.1:1")
    assert podstamp.err.count("\n") == 1


def test_routers_asks_the_leader(podstamp: Commands, leader: Launched) -> None:
    eventually(lambda: leading(leader), "it leads")
    assert podstamp.json("routers", "--controller", leader.health_url) == []


def leading(process: Launched) -> bool:
    return bool(httpx.get(f"{process.health_url}/status", trust_env=False).json()["leader"])
