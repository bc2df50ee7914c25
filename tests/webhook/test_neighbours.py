"""What the store may say of other pods before it is in sync, and what it may not."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from kube.pod import Pod
from tests.webhook.builders import NOW_NS, Object, encode, incarnation, owner, review, stamped
from tests.webhook.rows import HOLDER, IN_SET
from webhook.case import Settings
from webhook.judge import Judge, Verdict
from webhook.review import decode_review
from webhook.stamps import INCARNATION

FRESH = {INCARNATION: incarnation(0)}
CREATED = stamped("ps-3", owners=[owner()], labels=IN_SET, annotations=FRESH)


class View:
    """A store that holds these pods, whatever is asked."""

    def __init__(self, *pods: Object, synced: bool) -> None:
        self.synced = synced
        self._pods = msgspec.convert(pods, tuple[Pod, ...])

    def holder(self, namespace: str, name: str) -> Pod | None:
        return None

    def at_index(self, namespace: str, owner_uid: str, index: str) -> Iterable[Pod]:
        return self._pods


def validate(created: Object, view: View) -> Verdict:
    request = decode_review(encode(review("CREATE", created)))
    return Judge(Settings()).validate(request, NOW_NS, view)


def test_a_store_in_sync_raises_a_suspicion() -> None:
    verdict = validate(CREATED, View(HOLDER, synced=True))
    assert verdict.allowed
    assert verdict.suspicion is not None
    assert (verdict.suspicion.name, verdict.suspicion.set_index) == ("ps-other-3", "3")
    assert verdict.warnings == []


def test_a_store_that_is_not_in_sync_only_warns() -> None:
    verdict = validate(CREATED, View(HOLDER, synced=False))
    assert verdict.allowed
    assert verdict.suspicion is None
    assert "ps-other-3" in verdict.warnings[0]


@pytest.mark.parametrize(
    "created",
    [
        stamped("ps-other-3", owners=[owner()], labels=IN_SET, annotations=FRESH),
        stamped("ps-3", labels=IN_SET, annotations=FRESH),
        stamped("ps-3", owners=[owner()], annotations=FRESH),
    ],
    ids=["same-name", "no-owner", "no-index"],
)
def test_a_pod_that_is_no_rival_raises_none(created: Object) -> None:
    verdict = validate(created, View(HOLDER, synced=True))
    assert (verdict.suspicion, verdict.warnings) == (None, [])
