"""What people read about a reap."""

from __future__ import annotations

import random

import pytest

from controller.reports import Reports, describe
from controller.verdict import Reap, Shape
from kube.events import EventRecorder
from tests.clock import FakeClock
from tests.controller.fakeapi import FakeApi
from tests.controller.pods import as_pod, pod

POD = as_pod(pod("web-3", index="3"))
TERMINAL = Reap(Shape.TERMINAL, "u", "1", "Failed (Evicted)")
RETIRED = Reap(Shape.TERMINAL_RETIRED, "u", "1", "its record says suspended")


@pytest.fixture
def reports(clock: FakeClock) -> Reports:
    client = FakeApi(clock).client
    return Reports(EventRecorder(client, instance="t", clock=clock, random=random.Random(1)))


def test_a_description_names_pod_incarnation_index_shape_and_reason() -> None:
    text = describe(POD, TERMINAL)
    stamp = POD.metadata.annotations.incarnation
    assert text == (
        f"pod web-3 (incarnation {stamp}, index 3 of PodSet web, shape terminal): Failed (Evicted)"
    )


def test_a_pod_without_set_and_stamp_is_described_too() -> None:
    bare = as_pod(pod("run", index=None, owners=(), stamp=None))
    assert describe(bare, RETIRED).startswith("pod run (incarnation none, shape terminal-retired)")


def test_a_dry_run_names_each_pod_once_for_each_shape(reports: Reports) -> None:
    assert reports.would_reap(POD, TERMINAL)
    assert not reports.would_reap(POD, TERMINAL)
    assert reports.would_reap(POD, RETIRED)
    reports.forget(POD.metadata.uid)
    assert reports.would_reap(POD, TERMINAL)
