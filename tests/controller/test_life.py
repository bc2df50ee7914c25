"""The lives of set pods and of retired pods, with every part as the process that it is.

Runs on the embedded API server and, with --control-plane, on the real one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.kubectl import command
from tests.cluster import Cluster
from tests.controller.installed import PODSET, There, write_yaml
from tests.controller.postgres import Postgres
from tests.e2e.pods import pod, text
from tests.e2e.waiting import eventually
from tests.launch import launch_controller
from tests.standins.hosting import Hosted
from tests.standins.set_controller import SetController

LIVE: dict[str, Any] = {"terminal": {"dryRun": False}}


@contextmanager
def controller(cluster: Cluster, folder: Path, config: dict[str, Any]) -> Iterator[Path]:
    """Running with this configuration; yields the file, which it reads again when it changes."""
    file = write_yaml(folder / f"controller-{secrets.token_hex(4)}.yaml", config)
    process = launch_controller(cluster.kubeconfig, folder, config=file)
    try:
        yield file
        assert process.exit_code is None, process.tail()
    finally:
        assert process.stop() == 0, process.tail()


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_two_ended_pods_free_their_names_and_the_set_fills_them_again(
    cluster: Cluster, folder: Path, there: There, phase: str
) -> None:
    def whole() -> bool:
        return there.names() == {"web-0", "web-1", "web-2", "web-3"}

    with Hosted(lambda: SetController(cluster.kubeconfig)):
        there.do("create", "-f", "-", stdin=json.dumps(PODSET))
        eventually(whole, "the set is whole")
    before = there.incarnations()
    assert len(set(before.values())) == 4
    there.end("web-1", phase)
    there.end("web-2", phase)
    with controller(cluster, folder, LIVE):
        eventually(lambda: there.names() == {"web-0", "web-3"}, "both are gone")
        eventually(lambda: there.about("ReapedTerminal") == {"web-1", "web-2"}, "an event for each")
        with Hosted(lambda: SetController(cluster.kubeconfig)):
            eventually(whole, "both are back")
    after = there.incarnations()
    assert {name for name in after if after[name] == before[name]} == {"web-0", "web-3"}
    assert not {after["web-1"], after["web-2"]} & set(before.values())


def test_a_failed_pod_held_by_a_finalizer_does_not_keep_the_next_index_from_coming_back(
    cluster: Cluster, folder: Path, there: There
) -> None:
    with Hosted(lambda: SetController(cluster.kubeconfig)), controller(cluster, folder, LIVE):
        there.do("create", "-f", "-", stdin=json.dumps(PODSET))
        eventually(lambda: len(there.names()) == 4, "the set is whole")
        before = there.incarnations()
        hold = '{"metadata": {"finalizers": ["example.com/hold"]}}'
        there.do("patch", "pod", "web-1", "--type=merge", "-p", hold)
        there.end("web-1", "Failed")
        there.do("delete", "pod", "web-1", "--wait=false")
        there.end("web-2", "Failed")
        eventually(
            lambda: there.incarnations().get("web-2") not in (None, before["web-2"]),
            "index 2 is back",
        )
        assert there.incarnations()["web-1"] == before["web-1"]
        release = '{"metadata": {"finalizers": null}}'
        there.do("patch", "pod", "web-1", "--type=merge", "-p", release)
        eventually(
            lambda: there.incarnations().get("web-1") not in (None, before["web-1"]),
            "index 1 is back",
        )


def test_a_pod_retired_in_postgres_is_reported_in_dry_run_and_deleted_once_live(
    cluster: Cluster, folder: Path, there: There, postgres: Postgres
) -> None:
    there.do("create", "-f", "-", stdin=text(*(pod(f"run-{i}", there.name) for i in range(4))))
    stamps = there.incarnations()
    for name in ("run-0", "run-1", "run-2"):
        there.terminate(name, "Succeeded")
    rows = {
        "run-0": (stamps["run-0"], False),
        "run-1": (stamps["run-1"], True),
        "run-2": (stamps["run-3"], False),
        "run-3": (stamps["run-3"], False),
    }
    for name, (incarnation, active) in rows.items():
        insert = "INSERT INTO executions VALUES (%s, %s, %s, %s, %s)"
        postgres.run(insert, there.name, name, incarnation, "suspended", active)
    config: dict[str, Any] = {
        "retired": {
            "enabled": True,
            "holdSeconds": 1,
            "intervalSeconds": 1,
            "source": "postgres",
            "postgres": {"dsn": postgres.dsn},
        }
    }
    with controller(cluster, folder, config) as file:
        eventually(lambda: there.about("WouldReapRetired") == {"run-0"}, "a report of the dry run")
        assert there.names() == {"run-0", "run-1", "run-2", "run-3"}
        config["retired"]["dryRun"] = False
        write_yaml(file, config)
        eventually(lambda: "run-0" not in there.names(), "the retired pod is gone")
        eventually(lambda: there.about("ReapedRetired") == {"run-0"}, "an event")
        assert there.names() == {"run-1", "run-2", "run-3"}


def test_a_pod_retired_by_its_stamp_goes_when_it_is_over_whoever_retired_it_first(
    cluster: Cluster, folder: Path, there: There
) -> None:
    there.do("create", "-f", "-", stdin=text(*(pod(f"run-{i}", there.name) for i in range(3))))
    kubeconfig = ["--kubeconfig", str(cluster.kubeconfig), "-n", there.name]
    assert command(["retire", "run-0", "run-1", "--state", "suspended", *kubeconfig]) == 0
    assert command(["retire", "run-0", "--state", "replaced", *kubeconfig]) == 0
    live = {"enabled": True, "dryRun": False, "holdSeconds": 1, "intervalSeconds": 1}
    with controller(cluster, folder, {"retired": live}):
        for name in ("run-0", "run-2"):
            there.terminate(name, "Failed")
        eventually(lambda: there.about("ReapedRetired") == {"run-0"}, "an event")
        assert there.names() == {"run-1", "run-2"}
