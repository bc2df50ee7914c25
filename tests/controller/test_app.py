"""The whole controller against the embedded API server: faults, forged stamps, reports, limits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from controller.app import Controller
from kube import paths
from tests.apiserver import EmbeddedCluster
from tests.controller.pods import JOB, owner
from tests.controller.running import (
    LIVE,
    SHORT_LEASE,
    Cell,
    ShiftedClock,
    cell,
    config_of,
    fresh_incarnation,
    outcomes,
    running,
    until,
)
from webhook import stamps

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_two_ended_pods_go_with_an_event_each_on_pod_and_owner(
    embedded: EmbeddedCluster, phase: str
) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        for index in range(4):
            await there.create(f"web-{index}", index=str(index))
        await there.end("web-1", phase)
        await there.end("web-2", phase)
        await there.gone("web-1", "web-2")
        assert await there.names() == {"web-0", "web-3"}
        await controller.recorder.flush(5)
        events = await there.events("ReapedTerminal")
        assert sorted((e["regarding"]["kind"], e["regarding"]["name"]) for e in events) == [
            ("Pod", "web-1"),
            ("Pod", "web-2"),
            ("PodSet", "web"),
            ("PodSet", "web"),
        ]
        assert {e.get("deprecatedCount", 1) for e in events} == {1}
        assert outcomes(controller, "deleted") == 2
        await until(lambda: latency_count(controller) == 2)


def latency_count(controller: Controller) -> float:
    [metric] = controller.metrics.latency_s.collect()
    return sum(s.value for s in metric.samples if s.name.endswith("_count"))


async def test_a_pod_held_by_a_finalizer_does_not_keep_the_next_one(
    embedded: EmbeddedCluster,
) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        await there.create("web-1", index="1", finalizers=("example.com/hold",), phase="Failed")
        await until(lambda: terminating(controller, there, "web-1"))
        await there.create("web-2", index="2", phase="Failed")
        await there.gone("web-2")
        deletes = [path for verb, path, _ in embedded.requests() if verb == "delete"]
        assert len([path for path in deletes if path.endswith("web-1")]) == 1


def terminating(controller: Controller, there: Cell, name: str) -> bool:
    pod = controller.pods.get(there.namespace, name)
    return pod is not None and pod.metadata.deletion_timestamp is not None


async def test_survivors_of_a_whole_crowd_are_exactly_those_that_are_not_over(
    embedded: EmbeddedCluster,
) -> None:
    """No Running, Unknown, terminating, unmanaged or Job pod goes, and none of two lives."""
    phases = ("Pending", "Running", "Unknown", "Failed", "Succeeded")
    owners: dict[str, Any] = {"set": None, "job": (owner(JOB),), "bare": ()}
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig):
        kept: set[str] = set()
        gone: set[str] = set()
        for phase in phases:
            for kind, references in owners.items():
                for managed in (True, False):
                    for held in (False, True):
                        name = f"{phase}-{kind}-{managed}-{held}".lower()
                        over = phase in ("Failed", "Succeeded") and kind == "set" and managed
                        await there.create(
                            name,
                            index=None,
                            owners=references,
                            managed=managed,
                            finalizers=("example.com/hold",) if held else (),
                            phase=phase,
                        )
                        if held:
                            kept.add(name)
                        else:
                            (gone if over else kept).add(name)
        await there.gone(*gone)
        assert await there.names() == kept


FORGERIES: dict[str, dict[str, Any]] = {
    "no-incarnation": {"stamp": None},
    "no-uuid": {"stamp": "x"},
    "copied-from-an-hour-ago": {
        "stamp": stamps.new_incarnation(datetime.now(UTC) - timedelta(hours=1), bytes(10))
    },
    "left-out": {"labels": {stamps.ENABLED: "false"}},
}


@pytest.mark.parametrize("parts", FORGERIES.values(), ids=FORGERIES.keys())
async def test_a_pod_whose_stamps_are_not_believed_stays(
    embedded: EmbeddedCluster, parts: dict[str, Any]
) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        await there.create("web-1", index="1", phase="Failed", **parts)
        await there.create("web-2", index="2", phase="Failed")
        await there.gone("web-2")
        await until(lambda: outcomes(controller, "kept-unverified") == 1)
        assert await there.names() == {"web-1"}


async def test_an_incarnation_rewritten_through_the_status_keeps_the_pod(
    embedded: EmbeddedCluster,
) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        await there.create("web-1", index="1", phase="Running")
        forged = {stamps.INCARNATION: fresh_incarnation()}
        await there.client.patch(
            paths.pod_status(there.namespace, "web-1"),
            {"metadata": {"annotations": forged}, "status": {"phase": "Failed"}},
        )
        await until(lambda: outcomes(controller, "kept-unverified") == 1)
        assert await there.names() == {"web-1"}


@pytest.mark.parametrize("way", ["status", "binding"])
async def test_a_retirement_forged_while_the_policies_are_absent_leads_to_no_delete(
    embedded: EmbeddedCluster, way: str
) -> None:
    live = "{enabled: true, dryRun: false, holdSeconds: 0, intervalSeconds: 1}"
    text = f"healthPort: 0\nretired: {live}\n{SHORT_LEASE}"
    forged = {stamps.RETIRED: "suspended", stamps.RETIRED_AT: "2026-01-01T00:00:00Z"}
    async with cell(embedded.kubeconfig) as there:
        await there.create("run", index=None, owners=())
        if way == "binding":
            binding = {"metadata": {"name": "run", "annotations": forged}, "target": {"name": "n"}}
            await there.client.create(f"{paths.pod(there.namespace, 'run')}/binding", binding)
        else:
            metadata = {"metadata": {"annotations": forged}}
            await there.client.patch(paths.pod_status(there.namespace, "run"), metadata)
        statuses = [{"name": "engine", "state": {"terminated": {"exitCode": 0}}}]
        await there.write_status("run", {"phase": "Failed", "containerStatuses": statuses})
        async with running(embedded.kubeconfig, text) as controller:
            await until(lambda: outcomes(controller, "kept-unverified") == 1)
            stored = controller.pods.get(there.namespace, "run")
            assert stored is not None
            assert stored.metadata.annotations.retired == "suspended"
            await asyncio.sleep(1.2)
            assert await there.names() == {"run"}


async def test_two_uids_with_one_incarnation_both_stay(embedded: EmbeddedCluster) -> None:
    stamp = fresh_incarnation()
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        for name in ("web-1", "web-2"):
            await there.create(name, index=name[-1], stamp=stamp)
        await until(lambda: len(controller.pods) == 2)
        for name in ("web-1", "web-2"):
            await there.end(name)
        await until(lambda: outcomes(controller, "kept-unverified") == 2)
        assert await there.names() == {"web-1", "web-2"}


async def test_a_copy_whose_original_is_gone_stays(embedded: EmbeddedCluster) -> None:
    stamp = fresh_incarnation()
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        await there.create("web-1", index="1", stamp=stamp, phase="Failed")
        await there.gone("web-1")
        await until(lambda: len(controller.pods) == 0)
        assert controller.ledger.remembered == 1
        await there.create("web-9", index="9", stamp=stamp, phase="Failed")
        await until(lambda: outcomes(controller, "kept-unverified") == 1)
        assert await there.names() == {"web-9"}


async def test_a_namespace_that_was_never_or_is_not_any_more_enabled_keeps_its_pods(
    embedded: EmbeddedCluster,
) -> None:
    async with cell(embedded.kubeconfig, enabled=False) as there:
        async with running(embedded.kubeconfig) as controller:
            await there.create("web-1", index="1", phase="Failed")
            await until(lambda: outcomes(controller, "kept-unverified") == 1)
            await there.enable()
            await there.gone("web-1")
            await there.enable(None)
            await there.create("web-2", index="2", phase="Failed")
            await until(lambda: outcomes(controller, "kept-unverified") >= 2)
            assert await there.names() == {"web-2"}


async def test_a_dry_run_deletes_nothing_and_a_live_configuration_takes_over_without_a_restart(
    embedded: EmbeddedCluster,
) -> None:
    dry = "healthPort: 0\n" + SHORT_LEASE
    async with (
        cell(embedded.kubeconfig) as there,
        running(embedded.kubeconfig, dry, load=lambda: config_of(LIVE + SHORT_LEASE)) as controller,
    ):
        await there.create("web-1", index="1", phase="Failed")
        await until(lambda: outcomes(controller, "would-reap") == 1)
        await controller.recorder.flush(5)
        assert len(await there.events("WouldReapTerminal")) == 2
        assert await there.names() == {"web-1"}
        term = controller.term
        controller.config.reload()
        await there.gone("web-1")
        assert controller.term is term


async def test_two_live_pods_of_one_index_get_an_event_each_and_stay(
    embedded: EmbeddedCluster,
) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        await there.create("web-1", index="1", phase="Running")
        await there.create("web-one", index="1", phase="Running")
        await until(lambda: sightings(controller) == 2)
        await controller.recorder.flush(5)
        events = await there.events("IndexConflict")
        assert sorted(e["regarding"]["name"] for e in events) == ["web-1", "web-one"]
        assert await there.names() == {"web-1", "web-one"}


def sightings(controller: Controller) -> float:
    [metric] = controller.metrics.sightings.collect()
    return sum(s.value for s in metric.samples if s.name.endswith("_total"))


@pytest.mark.parametrize("fault", ["403", "429", "hang"])
async def test_events_that_fail_are_never_in_the_way_of_a_delete(
    embedded: EmbeddedCluster, fault: str
) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig):
        where: dict[str, Any] = {"verb": "create", "path": "/events", "times": None}
        if fault == "403":
            embedded.faults.fail(403, **where)
        elif fault == "429":
            embedded.faults.too_many(**where)
        else:
            embedded.faults.hang(**where)
        for index in range(5):
            await there.create(f"web-{index}", index=str(index), phase="Failed")
        await there.gone(*(f"web-{index}" for index in range(5)), timeout_s=5)
        embedded.faults.clear()


async def test_a_delete_event_lost_with_its_watch_is_made_up_for(
    embedded: EmbeddedCluster,
) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        await there.create("web-0", index="0", phase="Running")
        await until(lambda: len(controller.pods) == 1)
        embedded.faults.swallow_events(type="MODIFIED")
        await there.end("web-0")
        await asyncio.sleep(0.2)
        assert await there.names() == {"web-0"}
        embedded.faults.compact()
        embedded.faults.cut_watches()
        await there.gone("web-0")


@pytest.mark.parametrize("as_event", [False, True], ids=["http-status", "error-event"])
async def test_410_in_either_form_twice_in_a_row_leads_to_a_full_list(
    embedded: EmbeddedCluster, as_event: bool
) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        await there.create("web-0", index="0", phase="Running")
        await until(lambda: len(controller.pods) == 1)
        embedded.faults.gone(as_event=as_event, verb="watch", path="/pods", times=2)
        embedded.faults.swallow_events(type="MODIFIED")
        await there.end("web-0")
        embedded.faults.cut_watches()
        await there.gone("web-0")


async def test_a_store_that_nobody_refreshes_fails_readiness_stops_deletes_and_not_liveness() -> (
    None
):
    text = LIVE + SHORT_LEASE + "store: {maxAgeSeconds: 5}\n"
    clock = ShiftedClock()
    with EmbeddedCluster(bookmark_every_s=0.5) as server:
        async with cell(server.kubeconfig) as there:
            async with running(server.kubeconfig, text, clock=clock) as controller:
                server.faults.hang(verb="watch", times=None)
                server.faults.hang(verb="list", path="/pods|/namespaces", times=None)
                server.faults.cut_watches()
                clock.forward_s += 6
                assert "ago (limit 5 s)" in (controller.ready_problem() or "")
                assert controller.live_problem() is None
                assert not controller.is_fresh()
                await there.create("web-0", index="0", phase="Failed")
                server.faults.clear()
                await there.gone("web-0", timeout_s=20)
                assert controller.ready_problem() is None


async def test_health_status_and_metrics_answer(embedded: EmbeddedCluster) -> None:
    async with cell(embedded.kubeconfig) as there, running(embedded.kubeconfig) as controller:
        await there.create("web-0", index="0", phase="Running")
        await until(lambda: len(controller.pods) == 1 and controller.term is not None)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{controller.health.port}", trust_env=False
        ) as http:
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/readyz")).status_code == 200
            status = (await http.get("/status")).json()
            assert status["leader"] is True
            [line] = status["pods"]
            assert (line["pod"], line["verdict"], line["reason"]) == (
                "web-0",
                "keep",
                "running: it runs",
            )
            assert (await http.get("/routers")).json() == {"leader": True, "routers": []}
            metrics = (await http.get("/metrics")).text
            for name in (
                'podstamp_store_age_seconds{store="pods"}',
                'podstamp_store_objects{store="pods"} 1.0',
                "podstamp_leader 1.0",
                'podstamp_reaper_candidates{loop="terminal"} 0.0',
            ):
                assert name in metrics


async def test_an_outage_is_told_once_for_each_watch_however_long_it_lasts(
    embedded: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(embedded.kubeconfig_for("a")):
        caplog.clear()
        rule = embedded.faults.fail(503, user="a", verb="watch", times=None)
        embedded.faults.cut_watches(clean=True)
        await until(lambda: rule.hits >= 8)
        embedded.faults.clear()
    told = [record for record in caplog.records if "watch" in record.getMessage()]
    failed = [record for record in told if "works again" not in record.getMessage()]
    assert len(failed) == 2
