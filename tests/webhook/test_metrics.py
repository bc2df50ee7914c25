"""What `/metrics` says of admission."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from webhook.judge import Verdict
from webhook.metrics import BUCKETS_S, Tally
from webhook.patch import Add


def exposed(tally: Tally) -> list[str]:
    registry = CollectorRegistry()
    registry.register(tally)
    lines: list[str] = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_reviews_are_counted_by_endpoint_operation_verdict_and_rule() -> None:
    tally = Tally()
    patched = Verdict(True, "create", operations=[Add("/a", "b")])
    for _ in range(2):
        tally.review("mutate", "CREATE", patched, 0.0001)
    tally.review("validate", "CREATE", Verdict(True, "create"), 0.0001)
    tally.review("mutate", "UPDATE", Verdict(False, "fence", 409), 0.0001)
    tally.malformed("mutate", 0.0001)
    tally.review("mutate", "' or 1=1", Verdict(True, "other"), 0.0001)
    counted = {line for line in exposed(tally) if line.startswith("podstamp_admission_reviews")}
    name = "podstamp_admission_reviews_total"
    assert counted == {
        f'{name}{{endpoint="mutate",operation="CREATE",rule="create",verdict="patched"}} 2.0',
        f'{name}{{endpoint="validate",operation="CREATE",rule="create",verdict="allowed"}} 1.0',
        f'{name}{{endpoint="mutate",operation="UPDATE",rule="fence",verdict="denied"}} 1.0',
        f'{name}{{endpoint="mutate",operation="unknown",rule="malformed",verdict="denied"}} 1.0',
        f'{name}{{endpoint="mutate",operation="unknown",rule="other",verdict="allowed"}} 1.0',
    }


def test_latencies_fall_into_cumulative_buckets() -> None:
    tally = Tally()
    verdict = Verdict(True, "create")
    for seconds in (0.00005, 0.0002, 0.003, 99.0):
        tally.review("mutate", "CREATE", verdict, seconds)
    name = "podstamp_admission_duration_seconds"
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in exposed(tally)}

    def below(bound: str) -> float:
        return values[f'{name}_bucket{{endpoint="mutate",le="{bound}"}}']

    assert [below(b) for b in ("5e-05", "0.0001", "0.00025", "0.005", "+Inf")] == [1, 1, 2, 3, 4]
    assert below(str(BUCKETS_S[-1])) == 3
    assert values[f'{name}_count{{endpoint="mutate"}}'] == 4
    assert values[f'{name}_sum{{endpoint="mutate"}}'] == 99.00325


def test_failures_confirmations_and_the_age_of_the_store_are_exposed() -> None:
    tally = Tally(lambda: 1.5)
    tally.failed(413)
    tally.failed(413)
    tally.confirmed("held")
    lines = exposed(tally)
    assert 'podstamp_admission_failures_total{code="413"} 2.0' in lines
    assert 'podstamp_admission_confirmations_total{result="held"} 1.0' in lines
    assert "podstamp_admission_store_age_seconds 1.5" in lines
