"""The client: what it sends, how it waits and what becomes of errors. In process, no sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from kube.client import ApiClient
from kube.credentials import Credentials
from kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    Unreadable,
)
from kube.pod import Pod
from tests.clock import FakeClock

pytestmark = pytest.mark.anyio

Answer = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]


class Api:
    """A client on an in-process transport, and the requests that it sent."""

    def __init__(
        self, answer: Answer, clock: FakeClock, *, timeout_s: float = 10.0, **credentials: Any
    ) -> None:
        self.sent: list[httpx.Request] = []

        async def handle(request: httpx.Request) -> httpx.Response:
            self.sent.append(request)
            found = answer(request)
            return found if isinstance(found, httpx.Response) else await found

        self.client = ApiClient(
            Credentials("http://api", **credentials),
            timeout_s=timeout_s,
            clock=clock,
            transport=lambda _: httpx.MockTransport(handle),
        )


def status(code: int, **fields: Any) -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "code": code, **fields})


def in_turn(*answers: httpx.Response | Exception) -> Answer:
    """Each answer once, the last one again and again."""
    left = list(answers)

    def answer(_: httpx.Request) -> httpx.Response:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return answer


async def test_an_object_is_read_as_its_type_or_as_a_plain_dict(clock: FakeClock) -> None:
    api = Api(lambda _: httpx.Response(200, json={"metadata": {"name": "a"}}), clock)
    pod = await api.client.get("/p", type=Pod, params={"x": "1 2"})
    assert pod.metadata.name == "a"
    plain = await api.client.get("/p")
    assert plain == {"metadata": {"name": "a"}}
    assert await api.client.get_raw("/p") == b'{"metadata":{"name":"a"}}'
    assert api.sent[0].url == "http://api/p?x=1+2"
    assert api.sent[0].headers["accept"] == "application/json"


async def test_writes_send_json_and_return_what_was_stored(clock: FakeClock) -> None:
    class Body(msgspec.Struct):
        a: int

    api = Api(lambda request: httpx.Response(200, content=request.content), clock)
    assert await api.client.create("/c", Body(1)) == {"a": 1}
    assert await api.client.replace("/c/x", {"a": 2}, params={"dryRun": "All"}) == {"a": 2}
    assert await api.client.patch("/c/x", {"a": 3}, type=Body) == Body(3)
    operations = [{"op": "test", "path": "/a", "value": 1}]
    kind = "application/json-patch+json"
    assert await api.client.patch("/c/x", operations, content_type=kind, type=list) == operations
    assert [r.method for r in api.sent] == ["POST", "PUT", "PATCH", "PATCH"]
    assert [r.headers["content-type"] for r in api.sent] == [
        "application/json",
        "application/json",
        "application/merge-patch+json",
        kind,
    ]
    assert api.sent[1].url.params["dryRun"] == "All"


async def test_a_delete_carries_both_preconditions(clock: FakeClock) -> None:
    api = Api(lambda _: httpx.Response(200, json={"kind": "Status"}), clock)
    await api.client.delete("/p", uid="U", resource_version="7", dry_run=True)
    assert msgspec.json.decode(api.sent[0].content) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "U", "resourceVersion": "7"},
        "dryRun": ["All"],
    }


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (status(403, message="pods is forbidden"), Forbidden),
        (status(404), NotFound),
        (status(409, reason="Conflict"), Conflict),
        (status(409, reason="AlreadyExists"), AlreadyExists),
        (status(410, reason="Expired"), Gone),
        (httpx.Response(302, headers={"location": "https://elsewhere"}), ApiError),
        (httpx.Response(200, content=b"not json"), Unreachable),
        (httpx.Response(200, content=b'{"metadata":7}'), Unreadable),
        (httpx.ConnectError("refused"), Unreachable),
        (httpx.ReadTimeout("slow"), Unreachable),
        (httpx.RemoteProtocolError("cut"), Unreachable),
        (httpx.WriteError("cut"), Unreachable),
        (httpx.PoolTimeout("full"), Unreachable),
    ],
    ids=repr,
)
async def test_every_failure_leaves_as_its_kind_in_one_line(
    clock: FakeClock, answer: httpx.Response | Exception, kind: type[KubeError]
) -> None:
    api = Api(in_turn(answer), clock)
    with pytest.raises(kind) as caught:
        await api.client.get("/p", type=Pod)
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(api.sent) == 1, "nothing is repeated blindly"


async def test_who_cannot_be_reached_is_named(clock: FakeClock) -> None:
    api = Api(in_turn(httpx.ConnectError("refused")), clock)
    with pytest.raises(Unreachable, match="GET /p on http://api: refused"):
        await api.client.get("/p")


@pytest.mark.parametrize(
    ("headers", "wait_s"), [({"retry-after": "3"}, 3.0), ({}, 1.0), ({"retry-after": "soon"}, 1.0)]
)
async def test_too_many_requests_waits_as_asked_and_tries_again(
    clock: FakeClock, headers: dict[str, str], wait_s: float
) -> None:
    busy = httpx.Response(429, headers=headers)
    api = Api(in_turn(busy, busy, httpx.Response(200, json={"ok": 1})), clock)
    call = asyncio.create_task(api.client.create("/p", {}))
    await clock.settle()
    assert (len(api.sent), clock.next_wake_s) == (1, wait_s)
    await clock.advance(wait_s)
    assert len(api.sent) == 2
    await clock.advance(wait_s)
    assert await call == {"ok": 1}


@pytest.mark.parametrize("retry_after", ["10", "3600"])
async def test_a_wait_beyond_the_time_of_the_call_is_left_to_the_caller(
    clock: FakeClock, retry_after: str
) -> None:
    api = Api(in_turn(httpx.Response(429, headers={"retry-after": retry_after})), clock)
    with pytest.raises(TooManyRequests) as caught:
        await api.client.get("/p")
    assert caught.value.retry_after_s == float(retry_after)
    assert clock.sleepers == 0


async def test_repeats_end_when_the_time_of_the_call_is_over(clock: FakeClock) -> None:
    api = Api(in_turn(httpx.Response(429, headers={"retry-after": "4"})), clock)
    call = asyncio.create_task(api.client.get("/p"))
    await clock.advance(10)
    with pytest.raises(TooManyRequests):
        await call
    assert len(api.sent) == 3


async def test_a_call_is_bounded_as_a_whole(clock: FakeClock) -> None:
    async def trickle() -> Any:
        while True:
            await asyncio.sleep(0.005)
            yield b" "

    api = Api(lambda _: httpx.Response(200, content=trickle()), clock)
    with pytest.raises(Unreachable, match=r"no answer within 0\.03 s"):
        await api.client.get("/p", timeout_s=0.03)


async def test_a_refused_token_is_read_again_and_tried_once(
    clock: FakeClock, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    def answer(request: httpx.Request) -> httpx.Response:
        good = request.headers["authorization"] == "Bearer new"
        return httpx.Response(200, json={}) if good else status(401)

    api = Api(answer, clock, token_file=file)
    file.write_text("new\n")
    assert await api.client.get("/p") == {}
    assert [r.headers["authorization"] for r in api.sent] == ["Bearer old", "Bearer new"]
    assert await api.client.get("/p") == {}
    assert len(api.sent) == 3


async def test_a_token_that_stays_refused_is_an_error_after_one_repeat(
    clock: FakeClock, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    api = Api(lambda _: status(401, message="Unauthorized"), clock, token_file=file)
    with pytest.raises(Unauthorized):
        await api.client.get("/p")
    assert len(api.sent) == 1, "the same token again would be refused again"
    file.write_text("new")
    with pytest.raises(Unauthorized):
        await api.client.get("/p")
    assert len(api.sent) == 3


async def test_a_list_goes_from_page_to_page_with_its_selectors(clock: FakeClock) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        start = int(request.url.params.get("continue", 0))
        items = [{"metadata": {"uid": f"U{start + n}"}} for n in range(2)]
        token = {"continue": str(start + 2)} if start < 4 else {}
        return httpx.Response(
            200, json={"metadata": {"resourceVersion": "90", **token}, "items": items}
        )

    api = Api(answer, clock)
    pages = api.client.list_pages(
        "/p", type=Pod, label_selector="a=b", field_selector="c=d", page_size=2
    )
    uids = [[p.metadata.uid for p in page.items] async for page in pages]
    assert uids == [["U0", "U1"], ["U2", "U3"], ["U4", "U5"]]
    assert [r.url.params.get("continue") for r in api.sent] == [None, "2", "4"]
    for request in api.sent:
        assert request.url.params["limit"] == "2"
        assert request.url.params["labelSelector"] == "a=b"
        assert request.url.params["fieldSelector"] == "c=d"
        assert "resourceVersion" not in request.url.params


async def test_a_list_that_expires_between_pages_says_gone(clock: FakeClock) -> None:
    page = {"metadata": {"resourceVersion": "90", "continue": "t"}, "items": []}
    api = Api(in_turn(httpx.Response(200, json=page), status(410)), clock)
    pages = api.client.list_pages("/p", type=Pod)
    await anext(pages)
    with pytest.raises(Gone):
        await anext(pages)


async def lines_of(api: Api) -> list[bytes]:
    lines = api.client.watch("/p", resource_version="90", timeout_s=300, read_timeout_s=305)
    async with aclosing(lines):
        return [line async for line in lines]


async def test_a_watch_yields_lines_as_they_are(clock: FakeClock) -> None:
    text = '{"a":"\u0085"}\n\n{"b":1}\r\n{"cut'.encode()
    api = Api(lambda _: httpx.Response(200, content=text), clock)
    assert await lines_of(api) == ['{"a":"\u0085"}'.encode(), b'{"b":1}\r', b'{"cut']
    params = api.sent[0].url.params
    assert (params["resourceVersion"], params["allowWatchBookmarks"]) == ("90", "true")
    assert api.sent[0].extensions["timeout"]["read"] == 305


async def test_a_watch_that_is_refused_says_why(clock: FakeClock) -> None:
    for code, kind in ((410, Gone), (403, Forbidden), (429, TooManyRequests)):
        api = Api(in_turn(status(code, message="no")), clock)
        with pytest.raises(kind, match="no"):
            await lines_of(api)
        assert clock.sleepers == 0, "waiting is the reflector's"


async def test_a_watch_that_breaks_off_is_unreachable_after_its_last_line(
    clock: FakeClock,
) -> None:
    async def broken() -> Any:
        yield b"one\ntw"
        raise httpx.RemoteProtocolError("cut")

    api = Api(lambda _: httpx.Response(200, content=broken()), clock)
    lines = api.client.watch("/p", resource_version="90", timeout_s=300, read_timeout_s=305)
    assert await anext(lines) == b"one"
    with pytest.raises(Unreachable, match="cut"):
        await anext(lines)


async def test_a_watch_that_is_not_answered_ends_with_the_call_timeout(clock: FakeClock) -> None:
    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    api = Api(never, clock, timeout_s=0.02)
    with pytest.raises(Unreachable, match="no answer within"):
        await lines_of(api)
