"""Which caBundle is wrong, and what a repair touches."""

from base64 import b64decode
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import pytest

from certs.bundles import BundleStore, Pace, published, read_configuration, repair, trusted
from certs.validity import certificates, fingerprint
from kube.errors import Invalid
from tests.certs.memory import MUTATING, MemoryApi, MemoryClient
from tests.certs.world import Authority, entry, pem

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OURS, OTHER = Authority.make(NOW).certificate, Authority.make(NOW).certificate
LEAF = certificates(Authority.make(NOW).leaf(NOW).cert_pem)[0]
FOREIGN = entry("theirs.example.com", pem(OTHER))


def configuration(*entries: dict[str, Any], **annotations: str) -> dict[str, Any]:
    metadata = {"name": "podstamp", "resourceVersion": "7", "annotations": annotations}
    return {"metadata": metadata, "webhooks": list(entries)}


def repaired(raw: dict[str, Any], *cas: Any) -> dict[str, Any]:
    read = read_configuration("Mutating", "/x", raw)
    result: dict[str, Any] = jsonpatch.apply_patch(raw, repair(read, cas or [OURS]))
    return result


@pytest.mark.parametrize(
    "bundle",
    [None, "", "Cg==", "!!", pem(OTHER), pem(OURS, OTHER), b"junk\n" + pem(OURS), pem(LEAF)],
    ids=["absent", "empty", "newline", "no base64", "foreign", "one more", "junk", "a leaf"],
)
def test_each_wrong_bundle_of_ours_is_put_right_and_nothing_else(bundle: Any) -> None:
    raw = configuration(
        FOREIGN,
        entry("update.mutate.podstamp.dev", bundle),
        entry("by-url.mutate.podstamp.dev", bundle, url="https://127.0.0.1:9443/mutate"),
        entry("create.mutate.podstamp.dev", pem(OURS)),
        entry("podstamp.dev.example.com", bundle),
        theirs="x",
    )
    before = deepcopy(raw)
    after = repaired(raw)
    for index in (1, 2):
        config = after["webhooks"][index]["clientConfig"]
        assert b64decode(config.pop("caBundle")) == pem(OURS)
        before["webhooks"][index]["clientConfig"].pop("caBundle", None)
    assert after == before


def test_what_is_right_is_left_alone_in_any_order_and_with_other_white_space() -> None:
    text = b"\n" + pem(OTHER).replace(b"\n", b"\r\n") + pem(OURS) + b"\n\n"
    read = read_configuration("Mutating", "/x", configuration(entry("a.podstamp.dev", text)))
    assert repair(read, [OURS, OTHER]) == []


def test_nothing_is_written_when_there_is_no_ca() -> None:
    read = read_configuration("Mutating", "/x", configuration(entry("a.podstamp.dev", "")))
    assert repair(read, []) == []


@pytest.mark.anyio
@pytest.mark.parametrize("change", ["reorder", "edit"])
async def test_a_patch_from_an_old_view_changes_nothing(change: str) -> None:
    """Reordered, it would hit a foreign entry; edited, it would undo a newer bundle."""
    api = MemoryApi()
    api.put(MUTATING, {"webhooks": [FOREIGN, entry("a.podstamp.dev", "")]})
    bundles = BundleStore(MemoryClient(api, "a"), "podstamp")
    [old] = await bundles.read()
    webhooks = [entry("a.podstamp.dev", ""), FOREIGN]
    if change == "edit":
        webhooks = [FOREIGN, entry("a.podstamp.dev", pem(OURS, OTHER))]
    api.put(MUTATING, {"webhooks": webhooks})
    with pytest.raises(Invalid):
        await bundles.patch(old, repair(old, [OURS]))
    assert api.objects[MUTATING]["webhooks"] == webhooks


def test_trusted_is_what_every_entry_holds_and_published_what_any_does() -> None:
    read = [
        read_configuration("Mutating", "/x", configuration(entry("a.podstamp.dev", pem(OURS)))),
        read_configuration(
            "Validating",
            "/y",
            configuration(FOREIGN, entry("b.podstamp.dev", pem(OURS, LEAF))),
        ),
    ]
    assert trusted(read) == frozenset({fingerprint(OURS)})
    assert set(published(read)) == {OURS, LEAF}
    assert trusted([]) is None


def test_the_injector_is_known_by_its_annotation() -> None:
    raw = configuration(**{"cert-manager.io/inject-ca-from": "a/b"})
    assert read_configuration("Mutating", "/x", raw).injector == "cert-manager.io/inject-ca-from"
    assert read_configuration("Mutating", "/x", configuration(x="y")).injector is None


def test_the_first_repairs_are_free_and_then_the_waits_double_up_to_a_bound() -> None:
    pace = Pace(free=3, longest_s=20.0, quiet_s=100.0)
    now, waits = 1000.0, []
    for _ in range(8):
        waits.append(pace.wait_s(now))
        now += waits[-1]
        pace.record(now)
    assert waits == [0, 0, 0, 2, 4, 8, 16, 20]
    assert pace.contested(now)
    assert pace.wait_s(now + 19) == 1
    assert pace.wait_s(now + 101) == 0
    assert not pace.contested(now + 101)
