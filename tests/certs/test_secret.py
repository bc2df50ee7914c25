"""One Secret for all: made once, and never overwritten from an old view."""

import pytest

from certs.secret import EXTRA_SANS, ROTATE, SecretStore
from kube.errors import AlreadyExists, Conflict, NotFound
from tests.certs.memory import SECRET, MemoryApi, MemoryClient
from tests.certs.world import encode, store

pytestmark = pytest.mark.anyio


def secrets(api: MemoryApi, user: str = "a") -> SecretStore:
    return SecretStore(MemoryClient(api, user), "podstamp-system", "podstamp-webhook-cert")


async def test_it_is_made_with_both_keys_that_its_type_demands() -> None:
    api = MemoryApi()
    assert await secrets(api).read() is None
    made = await secrets(api).write(None, {"ca.crt": b"CA"})
    assert api.objects[SECRET]["type"] == "kubernetes.io/tls"
    assert made.data == {"ca.crt": b"CA", "tls.crt": b"", "tls.key": b""}


async def test_the_second_to_make_it_is_told_so() -> None:
    api = MemoryApi()
    await secrets(api).write(None, {"ca.crt": b"first"})
    with pytest.raises(AlreadyExists):
        await secrets(api, "b").write(None, {"ca.crt": b"second"})
    assert api.objects[SECRET]["data"]["ca.crt"] == encode({"x": b"first"})["x"]


async def test_a_write_from_an_old_view_changes_nothing() -> None:
    api = MemoryApi()
    old = await secrets(api).write(None, {"ca.crt": b"0"})
    await secrets(api, "b").write(old, {"ca.crt": b"1"})
    with pytest.raises(Conflict):
        await secrets(api).write(old, {"ca.crt": b"2"})
    current = await secrets(api).read()
    assert current is not None
    assert (current.data or {})["ca.crt"] == b"1"


async def test_keys_that_are_not_written_stay_and_so_do_annotations() -> None:
    api = MemoryApi()
    store(api, {"ca.crt": b"CA", "theirs": b"x"}, **{ROTATE: "ca", "theirs": "y"})
    after = await secrets(api).write(await secrets(api).read(), {"tls.crt": b"leaf"})
    assert after.data == {"ca.crt": b"CA", "theirs": b"x", "tls.crt": b"leaf"}
    assert after.metadata.annotations == {ROTATE: "ca", "theirs": "y"}


@pytest.mark.parametrize(
    ("asked", "done", "left"),
    [("leaf", ("leaf",), None), ("ca", ("leaf",), "ca"), ("ca", ("ca",), None)],
)
async def test_a_request_goes_when_it_is_fulfilled(
    asked: str, done: tuple[str, ...], left: str | None
) -> None:
    api = MemoryApi()
    store(api, {}, **{ROTATE: asked})
    before = await secrets(api).read()
    after = await secrets(api).write(before, {}, done=done)  # type: ignore[arg-type]  # a table
    assert after.asked == left


async def test_an_unknown_request_is_none() -> None:
    api = MemoryApi()
    store(api, {}, **{ROTATE: "bananas"})
    secret = await secrets(api).read()
    assert secret is not None
    assert secret.asked is None


async def test_further_names_add_up_and_bad_ones_are_left_out() -> None:
    api = MemoryApi()
    store(api, {}, **{EXTRA_SANS: "127.0.0.1, a b ,,x.example"})
    before = await secrets(api).read()
    assert before is not None
    assert before.extra_sans == ("127.0.0.1", "x.example")
    after = await secrets(api).write(before, {}, extra_sans=("localhost", "127.0.0.1"))
    assert after.extra_sans == ("127.0.0.1", "x.example", "localhost")


async def test_an_immutable_one_is_made_anew_unless_it_changed() -> None:
    api = MemoryApi()
    api.put(SECRET, {"data": encode({"ca.crt": b"old"}), "immutable": True})
    before = await secrets(api).read()
    assert before is not None
    api.put(SECRET, api.objects[SECRET])
    with pytest.raises(Conflict):
        await secrets(api).write(before, {"ca.crt": b"new"})
    after = await secrets(api).write(await secrets(api).read(), {"ca.crt": b"new"})
    assert after.immutable is False
    assert (after.data or {})["ca.crt"] == b"new"


async def test_a_request_needs_a_secret() -> None:
    with pytest.raises(NotFound):
        await secrets(MemoryApi()).ask("leaf")
