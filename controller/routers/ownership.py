"""Which entries of a router are ours, and of which incarnation each is.

Invariant: an entry is claimed in the stored record before it is asked for, so whatever appears
in a router because of us is known to be ours, also after a crash between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.routers.record import Record
from kube.logs import get_logger

_log = get_logger(__name__)
_KEY = "workers"


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """The incarnation for which an entry was asked, and when that was."""

    uid: str
    incarnation: str
    at: Annotated[datetime, Meta(tz=True)]


_decoder = msgspec.json.Decoder(dict[str, Claim])


class Ownership:
    """The claims of one router; all its replicas share them."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._claims: dict[str, Claim] = {}

    @property
    def claims(self) -> Mapping[str, Claim]:
        """By entry, as stored."""
        return self._claims

    async def load(self) -> None:
        """Read the record. KubeError: it could not be read."""
        await self._record.load()
        self._claims = _decode(self._record.get(_KEY))

    async def claim(self, claims: Mapping[str, Claim], *, renew_after_s: float) -> None:
        """Store these claims. One that names the same incarnation and is no older than
        `renew_after_s` is kept as it is, so that asking again costs no write."""

        def merge(stored: dict[str, Claim]) -> dict[str, Claim]:
            for entry, claim in claims.items():
                known = stored.get(entry)
                if (
                    known is None
                    or known.uid != claim.uid
                    or (claim.at - known.at).total_seconds() > renew_after_s
                ):
                    stored[entry] = claim
            return stored

        await self._store(merge)

    async def release(self, claims: Mapping[str, Claim]) -> None:
        """Forget these claims, each only if it is still the stored one: the entry is gone
        everywhere and cannot come back."""

        def prune(stored: dict[str, Claim]) -> dict[str, Claim]:
            return {entry: claim for entry, claim in stored.items() if claims.get(entry) != claim}

        await self._store(prune)

    async def _store(self, merge: Callable[[dict[str, Claim]], dict[str, Claim]]) -> None:
        def change(data: Mapping[str, str]) -> dict[str, str]:
            stored = _decode(data.get(_KEY, ""))
            merged = merge(dict(stored))
            if merged == stored:
                return dict(data)
            return {**data, _KEY: msgspec.json.encode(merged, order="sorted").decode()}

        await self._record.update(change)
        self._claims = _decode(self._record.get(_KEY))


def _decode(text: str) -> dict[str, Claim]:
    """Claims as stored; what cannot be read counts as none, since it names no entry."""
    if not text:
        return {}
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as error:
        _log.error("router record is not readable; its entries are no longer ours", error=error)
        return {}
