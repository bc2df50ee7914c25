"""Kind `webhook-url`: a signed POST of the whole desired set, for anything else.

Invariant: the sequence number is stored before it is used, so it only ever grows, also across
restarts and leaders; a receiver that ignores numbers below its last cannot be set back.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from controller.routers.config import WebhookUrlRouter
from controller.routers.desired import Desired
from controller.routers.kinds import Difference, Target
from controller.routers.metrics import RouterMetrics
from controller.routers.record import Record
from controller.routers.transport import Connector, RefusedError, TokenFile, short
from kube.clock import Clock
from kube.errors import ConfigError
from kube.events import ObjectReference

_KEY = "sequence"
_MAX_DIGITS = 18
TIMESTAMP_HEADER = "podstamp-timestamp"
SIGNATURE_HEADER = "podstamp-signature"


def payload_of(desired: Desired) -> list[dict[str, Any]]:
    """The engines, sorted by URL."""
    return [
        {
            "url": url,
            "namespace": backend.engine.namespace,
            "pod": backend.engine.name,
            "uid": backend.engine.uid,
            "incarnation": backend.engine.incarnation,
            "model": backend.engine.key.model_label,
            "models": list(backend.models),
            "adapters": list(backend.adapters),
        }
        for url, backend in sorted(desired.backends.items())
    ]


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """`sha256=` and the HMAC-SHA256 of `timestamp`, a dot and the body, in hex.

    The timestamp (seconds since the epoch) is signed too, so that a receiver can refuse what was
    recorded and sent again.
    """
    digest = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


class WebhookUrl:
    """One receiver, as one target: what it last accepted is what it has."""

    regarding: ObjectReference | None = None

    def __init__(
        self,
        config: WebhookUrlRouter,
        *,
        record: Record,
        clock: Clock,
        metrics: RouterMetrics,
    ) -> None:
        self._config = config
        self._record = record
        self._clock = clock
        self._metrics = metrics
        self._secret = TokenFile(config.secret_file)
        self._connector = Connector(
            https=config.url.startswith("https:"),
            ca_file=config.ca_file,
            timeout_s=config.timeout_seconds,
        )
        self._numbered: tuple[bytes, int] | None = None
        self._accepted: bytes | None = None
        self._accepted_at = 0.0
        self._urls: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The URL as people and logs may see it: without a password."""
        return _shown(self._config.url)

    async def load(self) -> None:
        await self._record.load()

    def targets(self) -> Mapping[str, Target]:
        return {"": self}

    async def settle(self, desired: Desired) -> None:
        return

    def applied_urls(self) -> frozenset[str]:
        return frozenset()

    async def aclose(self) -> None:
        return

    async def observe(self) -> None:
        """Nothing can be read back, so after a while the set is due again."""
        repeat_s = self._config.repeat_seconds
        if repeat_s and self._clock.monotonic() - self._accepted_at > repeat_s:
            self._accepted = None

    def observed(self) -> tuple[str, ...]:
        return self._urls

    def difference(self, desired: Desired) -> Difference:
        if desired.undecided:
            # Whether the receiver knows of these is not known: it hears of all or of nothing.
            return Difference(pending=tuple(sorted(desired.undecided)))
        if msgspec.json.encode(payload_of(desired)) == self._accepted:
            return Difference()
        return Difference(change=(self.label,))

    async def apply(self, desired: Desired, difference: Difference) -> None:
        engines = payload_of(desired)
        encoded = msgspec.json.encode(engines)
        sequence = await self._sequence(encoded)
        body = msgspec.json.encode(
            {
                "version": 1,
                "router": self._config.name,
                "sequence": sequence,
                "engines": engines,
            }
        )
        secret = self._secret.value()
        if not secret:
            raise ConfigError(f"{self._config.secret_file}: is empty; it must hold the secret")
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {
            "content-type": "application/json",
            TIMESTAMP_HEADER: timestamp,
            SIGNATURE_HEADER: sign(secret, timestamp, body),
        }
        url = self._config.url
        async with self._connector.peer() as peer:
            answer = await peer.call("POST", url, headers=headers, content=body)
        accepted = 200 <= answer.status < 300
        outcome = "done" if accepted else "failed"
        self._metrics.actions.labels(self._config.name, "post", outcome).inc()
        if not accepted:
            raise RefusedError(
                f"POST {self.label}: HTTP {answer.status} {short(answer.body)}".rstrip()
            )
        self._accepted, self._accepted_at = encoded, self._clock.monotonic()
        self._numbered = None
        self._urls = tuple(desired.backends)

    async def _sequence(self, encoded: bytes) -> int:
        """The number of this set; a retry of the same set keeps it."""
        if self._numbered is not None and self._numbered[0] == encoded:
            return self._numbered[1]

        def count(data: Mapping[str, str]) -> dict[str, str]:
            return {**data, _KEY: str(_number(data.get(_KEY, "")) + 1)}

        await self._record.update(count)
        number = _number(self._record.get(_KEY))
        self._numbered = (encoded, number)
        return number


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _number(text: str) -> int:
    """The stored number; 0 for what podstamp would not have stored, whatever its length."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else 0
