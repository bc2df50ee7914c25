"""Putting bundles right against others who write them, too."""

from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from certs.bundles import BundleStore
from certs.metrics import CertMetrics
from certs.publish import Publisher
from tests.certs.memory import MUTATING, VALIDATING, MemoryApi, MemoryClient
from tests.certs.recorder import Recorder
from tests.certs.world import Authority, bundles, install, wipe
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, SECOND = Authority.make(NOW).certificate, Authority.make(NOW).certificate
CONTESTED = "podstamp_ca_bundle_contested"
KIND = {"configuration": "MutatingWebhookConfiguration"}


class Bench:
    def __init__(self) -> None:
        self.api = MemoryApi()
        install(self.api)
        self.clock = FakeClock(NOW)
        self.registry = CollectorRegistry()
        self.recorder = Recorder()
        self.publisher = Publisher(
            BundleStore(MemoryClient(self.api, "a"), "podstamp"),
            clock=self.clock,
            random=Random(1),
            recorder=self.recorder,  # type: ignore[arg-type]  # all of it that is called
            metrics=CertMetrics(self.registry),
        )

    async def publish(self, *cas: object) -> float | None:
        """One pass; 0.0: something was written, otherwise the wait until the next try."""
        result = await self.publisher.publish(await self.publisher.read(), cas)  # type: ignore[arg-type]  # a short hand
        return 0.0 if result.changed else result.wait_s

    def right(self, *cas: object) -> bool:
        return all(trusted == list(cas) for trusted in bundles(self.api).values())

    def contested(self) -> float | None:
        return self.registry.get_sample_value(CONTESTED, KIND)


async def test_every_entry_of_both_configurations_is_filled() -> None:
    bench = Bench()
    await bench.publish(FIRST)
    assert len(bundles(bench.api)) == 3
    assert bench.right(FIRST)
    writes = len(bench.api.calls)
    assert await bench.publish(FIRST) is None
    assert [c for c in bench.api.calls[writes:] if c[1] != "GET"] == []


async def test_a_writer_that_resets_for_ever_is_met_ever_more_slowly_and_told_of() -> None:
    bench = Bench()
    await bench.publish(FIRST)
    repairs = []
    end = bench.clock.monotonic() + 3600
    while bench.clock.monotonic() < end:
        wipe(bench.api)
        waited = await bench.publish(FIRST)
        if waited == 0.0:
            repairs.append(bench.clock.monotonic())
        await bench.clock.advance(9)
    assert repairs[4] - repairs[0] == 4 * 9, "the first repairs come at once"
    assert len(repairs) < 30, "an hour of fighting"
    assert all(b - a <= 309 for a, b in pairwise(repairs)), "it never gives up"
    assert bench.contested() == 1
    assert sorted(bench.recorder.told) == [
        ("MutatingWebhookConfiguration", "Warning", "CABundleContested"),
        ("ValidatingWebhookConfiguration", "Warning", "CABundleContested"),
    ]


async def test_the_fight_is_over_when_the_other_writer_stops() -> None:
    bench = Bench()
    await bench.publish(FIRST)
    for _ in range(8):
        wipe(bench.api)
        await bench.publish(FIRST)
        await bench.clock.advance(1)
    assert bench.contested() == 1
    await bench.clock.advance(700)
    await bench.publish(FIRST)
    await bench.publish(FIRST)
    assert bench.right(FIRST)
    await bench.clock.advance(700)
    await bench.publish(FIRST)
    assert bench.contested() == 0


async def test_rotations_are_no_fight() -> None:
    bench = Bench()
    for _ in range(20):
        for cas in ((FIRST,), (SECOND, FIRST), (SECOND,)):
            assert await bench.publish(*cas) == 0.0
            assert bench.right(*cas)
    assert bench.recorder.told == []


async def test_the_second_configuration_is_filled_although_the_first_may_not_be() -> None:
    bench = Bench()
    bench.api.refuse = lambda method, path: 403 if (method, path) == ("PATCH", MUTATING) else None
    result = await bench.publisher.publish(await bench.publisher.read(), [FIRST])
    assert result.problem is not None
    assert "MutatingWebhookConfiguration" in result.problem
    trusted = bundles(bench.api)
    assert trusted.pop("create.validate.podstamp.dev") == [FIRST]
    assert set(map(len, trusted.values())) == {0}


async def test_a_refused_write_is_tried_again_and_again_but_not_in_a_hurry() -> None:
    bench = Bench()
    bench.api.refuse = lambda method, path: 403 if method == "PATCH" else None
    tries = 0
    for _ in range(120):
        before = len(bench.api.calls)
        await bench.publish(FIRST)
        tries += sum(call[1:] == ("PATCH", MUTATING) for call in bench.api.calls[before:])
        await bench.clock.advance(5)
    assert 10 < tries < 60


async def test_only_a_configuration_of_ours_that_is_installed_is_written() -> None:
    bench = Bench()
    del bench.api.objects[VALIDATING]
    await bench.publish(FIRST)
    bench.api.objects[MUTATING]["metadata"]["annotations"] = {
        "cert-manager.io/inject-ca-from": "a/b"
    }
    wipe_count = len(bench.api.calls)
    assert await bench.publish(SECOND) is None
    assert [c for c in bench.api.calls[wipe_count:] if c[1] != "GET"] == []


async def test_trust_is_counted_from_the_last_change_of_the_webhooks() -> None:
    bench = Bench()
    await bench.publish(FIRST)

    async def trusted_for() -> dict[str, float]:
        return bench.publisher.trusted_for_s(await bench.publisher.read(), [FIRST])

    assert list((await trusted_for()).values()) == [0.0]
    await bench.clock.advance(8)
    stored = bench.api.objects[MUTATING]
    bench.api.put(MUTATING, stored | {"metadata": stored["metadata"] | {"labels": {"a": "b"}}})
    assert list((await trusted_for()).values()) == [8.0], "a label is no matter of trust"
    webhooks = [w | {"timeoutSeconds": 3} for w in stored["webhooks"]]
    bench.api.put(MUTATING, bench.api.objects[MUTATING] | {"webhooks": webhooks})
    assert list((await trusted_for()).values()) == [0.0]


async def test_where_nobody_calls_us_every_ca_is_trusted() -> None:
    bench = Bench()
    bench.api.objects.clear()
    trusted_for = bench.publisher.trusted_for_s(await bench.publisher.read(), [FIRST])
    assert list(trusted_for.values()) == [float("inf")]
