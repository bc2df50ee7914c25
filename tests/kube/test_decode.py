from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube.decode import LineSplitter, decode_object, decode_page, identify
from kube.errors import Unreachable, Unreadable
from kube.meta import Identity
from kube.pod import Pod

GOOD_A = {"metadata": {"name": "a", "uid": "A"}}
GOOD_B = {"metadata": {"name": "b", "uid": "B"}}
BROKEN = {"metadata": {"name": "x", "namespace": "ns", "uid": "X", "labels": "none"}}


def page(*items: Any, **meta: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": "90", **meta}, "items": items})


def test_a_page_has_items_version_and_the_token_of_the_next() -> None:
    read = decode_page(page(GOOD_A, GOOD_B, **{"continue": "t"}), Pod)
    assert [p.metadata.uid for p in read.items] == ["A", "B"]
    assert (read.resource_version, read.next_token, read.broken) == ("90", "t", ())


@pytest.mark.parametrize("items", [None, []], ids=["null", "empty"])
def test_a_page_may_have_no_items(items: Any) -> None:
    body = msgspec.json.encode({"metadata": {"resourceVersion": "90"}, "items": items})
    assert decode_page(body, Pod).items == []


def test_one_broken_object_does_not_spoil_its_neighbours() -> None:
    read = decode_page(page(GOOD_A, BROKEN, 7, GOOD_B, **{"continue": "t"}), Pod)
    assert [p.metadata.uid for p in read.items] == ["A", "B"]
    assert (read.resource_version, read.next_token) == ("90", "t")
    assert [b.identity for b in read.broken] == [Identity("x", "ns", "X", ""), Identity()]
    assert "labels" in read.broken[0].error


def test_a_null_inside_one_object_is_absent_and_not_broken() -> None:
    read = decode_page(page(GOOD_A, {"metadata": {"uid": "N", "labels": None}}), Pod)
    assert [p.metadata.uid for p in read.items] == ["A", "N"]
    assert read.broken == ()


@pytest.mark.parametrize(
    "body", [b"", b'{"items":[', b"<html>", b"\xff\xff", b'{"items":[{}]'], ids=repr
)
def test_what_is_no_json_is_unreachable(body: bytes) -> None:
    with pytest.raises(Unreachable):
        decode_page(body, Pod)
    with pytest.raises(Unreachable):
        decode_object(body, Pod)


@pytest.mark.parametrize("body", [b"[]", b'{"metadata":3}', b'{"items":{}}'], ids=repr)
def test_a_page_of_another_shape_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_page(body, Pod)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"metadata":{"name":"a","uid":"A","labels":7}}', Identity(name="a", uid="A")),
        (b'{"metadata":{"name":7}}', Identity()),
        (b'{"metadata":[]}', Identity()),
        (b"{}", Identity()),
        (b"7", Identity()),
    ],
)
def test_of_a_broken_object_the_identity_is_read_if_it_can_be(
    body: bytes, expected: Identity
) -> None:
    assert identify(body) == expected


# A busy machine is slow at times; that is no fault of what is tested.
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)), st.data()
)
def test_lines_are_cut_at_newlines_alone_wherever_the_chunks_end(
    texts: list[str], data: st.DataObject
) -> None:
    stream = b"".join(text.encode() + b"\n" for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    splitter = LineSplitter()
    lines: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        lines += splitter.feed(stream[start:end])
    assert [line.decode() for line in lines] == texts
    assert splitter.rest() == b""


def test_a_next_line_character_inside_a_string_does_not_end_a_line() -> None:
    line = '{"a":"x\u0085y\u2028z\r"}'.encode()
    assert LineSplitter().feed(line + b"\n") == [line]


def test_the_rest_is_what_came_after_the_last_newline() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.rest() == b"tw"
    assert splitter.feed(b"o") == []
    assert splitter.rest() == b"two"


def test_a_line_of_many_mib_is_put_together_once() -> None:
    chunk = b"x" * 65536
    splitter = LineSplitter()
    for _ in range(400):
        assert splitter.feed(chunk) == []
    (line,) = splitter.feed(b"\n")
    assert len(line) == 400 * 65536
