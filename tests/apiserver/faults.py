"""Fault injection: rules that make chosen requests fail in chosen ways.

Every method may be called from any thread and holds for the next requests that match. A rule
counts its hits; `clear` ends every fault, releases what hangs and opens the port again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tests.apiserver.errors import StatusError
from tests.apiserver.storage import Change

Kind = Literal["status", "hang", "truncate", "gone-event"]


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests: every field that is not None has to fit.

    `verb` is one of get, list, watch, create, update, patch, delete, deletecollection;
    `path` a regular expression that is searched for; `user` a whole user name.
    """

    verb: str | None = None
    path: str | None = None
    user: str | None = None

    def fits(self, verb: str, path: str, user: str) -> bool:
        return (
            (self.verb is None or self.verb == verb)
            and (self.path is None or re.search(self.path, path) is not None)
            and (self.user is None or self.user == user)
        )


@dataclass(slots=True)
class Rule:
    """One fault; `left` requests still meet it (None: all), `hits` have met it."""

    kind: Kind
    match: Match
    left: int | None
    error: StatusError | None = None
    retry_after_s: int | None = None
    keep_bytes: int = 0
    hits: int = 0
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def release(self) -> None:
        """Let what hangs go on; on the server's loop."""
        for wake in self.waiting:
            wake()
        self.waiting.clear()


class FaultyServer(Protocol):
    """What the faults of a whole server need of it; called on its loop."""

    def cut_watches(self, clean: bool) -> int: ...

    def compact(self) -> object: ...

    def block(self) -> None: ...

    def unblock(self) -> object: ...


class Faults:
    """The faults of one server."""

    def __init__(
        self, run_on_loop: Callable[[Callable[[], Any]], Any], server: FaultyServer
    ) -> None:
        self._run = run_on_loop
        self._server = server
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._swallow: list[tuple[str, str | None, list[int]]] = []

    # faults of single requests

    def fail(
        self,
        status: int,
        *,
        reason: str = "",
        message: str = "injected fault",
        verb: str | None = None,
        path: str | None = None,
        user: str | None = None,
        times: int | None = 1,
    ) -> Rule:
        """Answer with this HTTP status and a Status object."""
        error = StatusError(status, reason or _REASONS.get(status, ""), message, {})
        return self._add(Rule("status", Match(verb, path, user), times, error))

    def too_many(
        self,
        retry_after_s: int = 1,
        *,
        verb: str | None = None,
        path: str | None = None,
        user: str | None = None,
        times: int | None = 1,
    ) -> Rule:
        """429 with a Retry-After header."""
        details = {"retryAfterSeconds": retry_after_s}
        error = StatusError(429, "TooManyRequests", "too many requests, try later", details)
        rule = Rule("status", Match(verb, path, user), times, error, retry_after_s)
        return self._add(rule)

    def gone(
        self,
        *,
        as_event: bool = False,
        verb: str | None = None,
        path: str | None = None,
        user: str | None = None,
        times: int | None = 1,
    ) -> Rule:
        """410 Expired: as the HTTP status, or as the ERROR event of a watch that began well."""
        error = StatusError(410, "Expired", "too old resource version: 1 (2)")
        kind: Kind = "gone-event" if as_event else "status"
        return self._add(Rule(kind, Match("watch" if as_event else verb, path, user), times, error))

    def hang(
        self,
        *,
        verb: str | None = None,
        path: str | None = None,
        user: str | None = None,
        times: int | None = 1,
    ) -> Rule:
        """Take the request and say nothing until `clear`, `release` or the client's end.

        What is released is then served as if nothing had been.
        """
        return self._add(Rule("hang", Match(verb, path, user), times))

    def truncate_body(
        self,
        *,
        keep_bytes: int = 20,
        verb: str | None = None,
        path: str | None = None,
        user: str | None = None,
        times: int | None = 1,
    ) -> Rule:
        """Serve, but break the connection off after `keep_bytes` of the body.

        In a watch that is after `keep_bytes` of its next event.
        """
        rule = Rule("truncate", Match(verb, path, user), times, keep_bytes=keep_bytes)
        return self._add(rule)

    def remove(self, rule: Rule) -> None:
        """End one fault, releasing what hangs by it."""
        with self._lock:
            if rule in self._rules:
                self._rules.remove(rule)
            rule.left = 0
        self.release(rule)

    def release(self, rule: Rule) -> None:
        """Let what hangs by this rule go on."""
        self._run(rule.release)

    # faults of the server as a whole

    def cut_watches(self, *, clean: bool = False) -> int:
        """End every open watch; not `clean` breaks the connections off. How many there were."""
        return int(self._run(lambda: self._server.cut_watches(clean)))

    def swallow_events(
        self, count: int = 1, *, resource: str = "pods", type: str | None = None
    ) -> None:
        """The next `count` changes of a resource happen, but no watch ever tells of them.

        `resource` is plural.group; `type` ADDED, MODIFIED or DELETED narrows it. Later watches
        from before do not learn of them either: only a list shows the truth.
        """
        with self._lock:
            self._swallow.append((resource, type, [count]))

    def compact(self) -> None:
        """Forget the history, as etcd's compaction does: older versions are 410."""
        self._run(self._server.compact)

    def block(self) -> None:
        """Refuse every connection at the port, and break off those that are open."""
        self._run(self._server.block)

    def clear(self) -> None:
        """End every fault."""
        with self._lock:
            rules, self._rules = self._rules, []
            self._swallow.clear()
        for rule in rules:
            self.release(rule)
        self._run(self._server.unblock)

    # the server's side

    def take(self, verb: str, path: str, user: str) -> Rule | None:
        """The first rule that this request meets; its count is taken off."""
        if not self._rules:
            return None
        with self._lock:
            for rule in self._rules:
                if rule.left != 0 and rule.match.fits(verb, path, user):
                    rule.hits += 1
                    if rule.left is not None:
                        rule.left -= 1
                    return rule
        return None

    def loses(self, resource: str, change: Change) -> bool:
        """Whether watchers are not to hear of this change."""
        if not self._swallow:
            return False
        with self._lock:
            for wanted, type_, left in self._swallow:
                if wanted == resource and type_ in (None, change.type) and left[0] > 0:
                    left[0] -= 1
                    return True
        return False

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
