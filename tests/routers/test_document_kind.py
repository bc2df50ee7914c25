"""What holds for every document, whatever reads it."""

from __future__ import annotations

import pytest

from controller.routers.document_kind import DocumentTarget
from controller.routers.kinds import Difference
from controller.routers.worker_file import WorkerFile
from kube.events import ObjectReference
from tests.clock import FakeClock
from tests.routers.fleet import backend, desired

pytestmark = pytest.mark.anyio

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
FILE = WorkerFile(adapters=True)


class Memory:
    """A document without a medium."""

    label = "memory"
    regarding: ObjectReference | None = None

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.writes = 0

    async def read(self) -> bytes | None:
        return self.content

    async def write(self, content: bytes) -> None:
        self.content = content
        self.writes += 1

    @property
    def urls(self) -> list[str]:
        return list(FILE.parse(self.content or b"") or {})


def target(document: Memory, clock: FakeClock) -> DocumentTarget:
    return DocumentTarget(document, FILE, clock=clock, router="chat", wake=lambda: None)


async def reconcile(made: DocumentTarget, *names: str) -> Difference:
    """One pass with the engines at these URLs; what still differs after it."""
    wanted = desired(*(backend(f"e-{url}", url) for url in names))
    await made.observe()
    found = made.difference(wanted)
    if not found.idle:
        await made.apply(wanted, found)
        await made.observe()
    return made.difference(wanted)


async def test_a_document_is_written_only_if_it_says_something_else(clock: FakeClock) -> None:
    document = Memory()
    made = target(document, clock)
    assert await reconcile(made, A, B) == Difference()
    assert await reconcile(made, B, A) == Difference()
    assert document.writes == 1
    assert document.urls == [A, B]


async def test_an_empty_set_is_written_where_there_is_no_document(clock: FakeClock) -> None:
    document = Memory()
    assert await reconcile(target(document, clock)) == Difference()
    assert document.writes == 1


async def test_an_entry_that_left_is_not_back_before_the_router_has_let_go_of_it(
    clock: FakeClock,
) -> None:
    document = Memory()
    made = target(document, clock)
    await reconcile(made, A, B)
    await reconcile(made, B)
    assert await reconcile(made, A, B) == Difference(pending=(A,))
    assert document.urls == [B]
    await clock.advance(5.9)
    assert not (await reconcile(made, A, B)).settled
    await clock.advance(0.2)
    assert await reconcile(made, A, B) == Difference()
    assert document.urls == [A, B]


async def test_what_somebody_else_wrote_is_put_right(clock: FakeClock) -> None:
    document = Memory()
    made = target(document, clock)
    await reconcile(made, A)
    right = document.content or b""
    for wrong in (None, b"", b"{", right + b"\n", right.replace(A.encode(), B.encode())):
        document.content = wrong
        assert await reconcile(made, A) == Difference()
        assert document.content == right
