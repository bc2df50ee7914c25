"""What a pass tells, and what it does where it may not do everything."""

from datetime import UTC, datetime
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from certs.metrics import CertMetrics
from certs.secret import ROTATE
from certs.settings import CertSettings
from certs.steps import Keep
from certs.upkeep import Upkeep
from certs.validity import certificates, renew_at
from tests.certs.memory import REPLICAS, SECRET, MemoryApi, MemoryClient
from tests.certs.recorder import Recorder
from tests.certs.world import DAY, SETTLE_S, Authority, install, store
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOT_AFTER = "podstamp_certificate_not_after_timestamp_seconds"
OURS = Authority.make(NOW)


class Bench:
    def __init__(self) -> None:
        self.api = MemoryApi()
        install(self.api)
        self.clock = FakeClock(NOW)
        self.registry = CollectorRegistry()
        self.recorder = Recorder()
        self.upkeep = Upkeep(
            MemoryClient(self.api, "a"),
            namespace="podstamp-system",
            settings=CertSettings(),
            clock=self.clock,
            random=Random(1),
            recorder=self.recorder,  # type: ignore[arg-type]  # all of it that is called
            metrics=CertMetrics(self.registry),
        )

    async def settle(self) -> Keep:
        """Passes until nothing is left to do at this moment."""
        while True:
            outcome = await self.upkeep.advance()
            if outcome.wait_s > 0 and isinstance(outcome.step, Keep):
                return outcome.step

    async def pass_by(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.settle()

    def writes(self, path: str) -> int:
        return sum(call[1] != "GET" and call[2].startswith(path) for call in self.api.calls)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


async def test_each_step_is_an_event_on_the_secret_and_is_counted() -> None:
    bench = Bench()
    await bench.settle()
    await bench.pass_by(SETTLE_S)
    stored = bench.api.objects[SECRET]
    annotations = {"annotations": {ROTATE: "ca"}}
    bench.api.put(SECRET, stored | {"metadata": stored["metadata"] | annotations})
    await bench.settle()
    await bench.pass_by(SETTLE_S)
    await bench.pass_by(SETTLE_S)
    assert bench.recorder.told == [
        ("Secret", "Normal", "CertificatesIssued"),
        ("Secret", "Normal", "CAAdded"),
        ("Secret", "Normal", "CertificateRenewed"),
        ("Secret", "Normal", "OldCADropped"),
    ]
    for step in ("Reissue", "PublishNewCA", "ServeNewLeaf", "DropOldCA"):
        assert bench.metric("podstamp_certificate_steps_total", step=step) == 1


async def test_the_end_of_validity_is_exported() -> None:
    bench = Bench()
    data = OURS.secret(OURS.leaf(NOW))
    store(bench.api, data)
    await bench.settle()
    [leaf] = certificates(data["tls.crt"])
    assert bench.metric(NOT_AFTER, certificate="serving") == leaf.not_valid_after_utc.timestamp()
    end = OURS.certificate.not_valid_after_utc
    assert bench.metric(NOT_AFTER, certificate="ca") == end.timestamp()
    assert bench.metric(NOT_AFTER, certificate="served") is None


async def test_an_overdue_renewal_is_told_now_and_then_until_it_works() -> None:
    bench = Bench()
    data = OURS.secret(OURS.leaf(NOW))
    store(bench.api, data)
    bench.api.refuse = lambda method, path: 403 if (method, path) == ("PATCH", SECRET) else None
    due = renew_at(certificates(data["tls.crt"])[0])
    await bench.clock.advance((due - NOW).total_seconds() - 60)
    await bench.settle()
    assert bench.recorder.told == []
    for _ in range(9):
        await bench.clock.advance(2 * DAY.total_seconds())
        with pytest.raises(Exception, match="is refused"):
            await bench.settle()
    late = [told for told in bench.recorder.told if told[2] == "CertificateRenewalOverdue"]
    assert late == [("Secret", "Warning", "CertificateRenewalOverdue")] * 2, "from 75 days on"
    assert bench.metric("podstamp_certificate_renewal_overdue") == 1
    bench.api.refuse = lambda method, path: None
    await bench.settle()
    assert bench.metric("podstamp_certificate_renewal_overdue") == 0


async def test_without_the_right_to_read_confirmations_only_the_old_ca_stays() -> None:
    bench = Bench()
    await bench.settle()
    await bench.pass_by(SETTLE_S)
    bench.api.refuse = lambda method, path: 403 if path == REPLICAS else None
    await bench.upkeep.store.ask("ca")
    await bench.settle()
    for _ in range(5):
        await bench.pass_by(SETTLE_S)
    told = [reason for _, _, reason in bench.recorder.told]
    assert told == ["CertificatesIssued", "CAAdded", "CertificateRenewed"]
    assert "nobody can say" in (await bench.settle()).reason


async def test_a_replica_that_comes_back_just_before_it_is_taken_away_stays() -> None:
    bench = Bench()
    await bench.settle()
    record = (
        '{"leaf":"x","ca":"y","notAfter":"2100-01-01T00:00:00Z","seen":"2026-01-01T00:00:0%dZ"}'
    )
    bench.api.put(REPLICAS, {"data": {"b": record % 0, "c": record % 0}})
    await bench.settle()

    def comes_back(method: str, path: str) -> None:
        if (method, path) == ("PATCH", REPLICAS):
            bench.api.refuse = lambda method, path: None
            bench.api.put(REPLICAS, {"data": {"b": record % 1, "c": record % 0}})

    bench.api.refuse = comes_back
    await bench.pass_by(CertSettings().lost_seconds)
    assert "b" in bench.api.objects[REPLICAS]["data"]
    await bench.pass_by(1)
    assert set(bench.api.objects[REPLICAS]["data"]) == {"b"}


async def test_somebody_who_keeps_breaking_the_secret_is_met_ever_more_slowly() -> None:
    bench = Bench()
    await bench.settle()
    for _ in range(200):
        stored = bench.api.objects[SECRET]
        bench.api.put(SECRET, stored | {"data": stored["data"] | {"tls.crt": ""}})
        await bench.upkeep.advance()
        await bench.clock.advance(9)
    assert 8 < bench.writes(SECRET) < 30


async def test_a_pass_over_a_settled_cluster_writes_nothing_and_reads_four_objects() -> None:
    bench = Bench()
    await bench.settle()
    await bench.pass_by(SETTLE_S)
    before = len(bench.api.calls)
    await bench.upkeep.advance()
    calls = bench.api.calls[before:]
    assert [method for _, method, _ in calls] == ["GET"] * 4
    configurations, secret = [c[2] for c in calls][:2], [c[2] for c in calls][2]
    assert all("webhookconfigurations" in path for path in configurations)
    assert secret == SECRET, "read after the configurations: see certs.bundles"
