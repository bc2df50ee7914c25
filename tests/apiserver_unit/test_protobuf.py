"""Protobuf bodies: what kubectl's typed commands send, written here by hand."""

from __future__ import annotations

import pytest

from tests.apiserver.errors import StatusError
from tests.apiserver.protobuf import decode


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _bytes(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _int(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _body(api_version: str, kind: str, raw: bytes) -> bytes:
    types = _bytes(1, api_version) + _bytes(2, kind)
    return b"k8s\x00" + _bytes(1, types) + _bytes(2, raw) + _bytes(3, "") + _bytes(4, "")


def test_a_secret_with_metadata_and_maps() -> None:
    owner = _bytes(1, "Pod") + _bytes(3, "o") + _bytes(4, "u") + _bytes(5, "v1") + _int(6, 1)
    metadata = (
        _bytes(1, "s")
        + _bytes(8, _int(1, 1_700_000_000))
        + _int(10, 30)
        + b"".join(_bytes(11, _bytes(1, key) + _bytes(2, "x")) for key in "ab")
        + _bytes(13, owner)
        + _bytes(14, "one")
        + _bytes(14, "two")
        + _bytes(99, "from the future")
    )
    raw = _bytes(1, metadata) + _bytes(2, _bytes(1, "k") + _bytes(2, b"\xff")) + _bytes(3, "Opaque")
    assert decode(_body("v1", "Secret", raw)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "s",
            "creationTimestamp": "2023-11-14T22:13:20Z",
            "deletionGracePeriodSeconds": 30,
            "labels": {"a": "x", "b": "x"},
            "ownerReferences": [
                {"kind": "Pod", "name": "o", "uid": "u", "apiVersion": "v1", "controller": True}
            ],
            "finalizers": ["one", "two"],
        },
        "data": {"k": "/w=="},
        "type": "Opaque",
    }


def test_an_eviction_with_its_options() -> None:
    options = _int(1, 7) + _bytes(2, _bytes(1, "u")) + _bytes(5, "All")
    raw = _bytes(1, _bytes(1, "web")) + _bytes(2, options)
    assert decode(_body("policy/v1", "Eviction", raw))["deleteOptions"] == {
        "gracePeriodSeconds": 7,
        "preconditions": {"uid": "u"},
        "dryRun": ["All"],
    }


def test_a_negative_number_is_one() -> None:
    raw = _int(1, (1 << 64) - 1)
    assert decode(_body("v1", "DeleteOptions", raw))["gracePeriodSeconds"] == -1


def test_fields_of_other_wire_types_are_skipped() -> None:
    odd = bytes([50 << 3 & 0x7F | 1 | 0x80, 3]) + bytes(8) + bytes([51 << 3 & 0x7F | 5 | 0x80, 3])
    raw = odd + bytes(4) + _bytes(1, _bytes(1, "n"))
    assert decode(_body("v1", "Namespace", raw))["metadata"] == {"name": "n"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(b"", 400, id="empty"),
        pytest.param(b"k8s\x00\x0a\xff", 400, id="cut off"),
        pytest.param(_body("v1", "Namespace", b"\x0a\x7f"), 400, id="cut off within"),
        pytest.param(_body("v1", "Namespace", b"\x0b"), 400, id="wire type"),
        pytest.param(_body("v1", "Namespace", _int(1, 1)), 400, id="number for a message"),
        pytest.param(_body("v1", "Pod", b""), 415, id="a kind that is not covered"),
    ],
)
def test_what_cannot_be_read(body: bytes, code: int) -> None:
    with pytest.raises(StatusError) as caught:
        decode(body)
    assert caught.value.code == code
