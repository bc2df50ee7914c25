"""Lists: selectors, pages, and the versions that a list may ask for.

Invariant: the pages of one list show one state, that of its first page, or end in 410.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from tests.apiserver import errors
from tests.apiserver.accept import Accepted
from tests.apiserver.call import Target
from tests.apiserver.errors import Cause, StatusError
from tests.apiserver.kinds import Object, Resource
from tests.apiserver.selectors import Predicate, predicate
from tests.apiserver.storage import Record, Storage
from tests.apiserver.views import render_list

SNAPSHOTS = 64


@dataclass(frozen=True, slots=True)
class ListRequest:
    labels: str = ""
    fields: str = ""
    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""
    timeout_s: int = 0
    initial_events: bool = False

    @staticmethod
    def of(query: dict[str, str], *, watch: bool = False) -> ListRequest:
        """400 or 422 for what the real server refuses."""
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        if version and not version.isdigit():
            raise _invalid("resourceVersion", f'Invalid value: "{version}"', "FieldValueInvalid")
        initial = query.get("sendInitialEvents")
        if initial is not None and (not watch or match != "NotOlderThan"):
            why = (
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
            if not watch:
                why = "Forbidden: sendInitialEvents is forbidden for list"
            raise _invalid("sendInitialEvents", why, "FieldValueForbidden")
        if match:
            _check_match(match, version, watch, initial is not None)
        return ListRequest(
            query.get("labelSelector", ""),
            query.get("fieldSelector", ""),
            _number(query, "limit"),
            query.get("continue", ""),
            version,
            match,
            _number(query, "timeoutSeconds"),
            initial in ("true", "1"),
        )

    def predicate(self, resource: Resource) -> Predicate | None:
        return predicate(self.labels, self.fields, resource.fields)


def _number(query: dict[str, str], name: str) -> int:
    text = query.get(name) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise errors.bad_request(
            f'{name}: strconv.ParseInt: parsing "{text}": invalid syntax'
        ) from error


def _check_match(match: str, version: str, watch: bool, initial: bool) -> None:
    if match not in ("Exact", "NotOlderThan"):
        text = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
        raise _invalid("resourceVersionMatch", text, "FieldValueNotSupported")
    if watch and not initial:
        why = (
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is "
            "provided"
        )
        raise _invalid("resourceVersionMatch", why, "FieldValueForbidden")
    if not version and not watch:
        why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise _invalid("resourceVersionMatch", why, "FieldValueForbidden")
    if match == "Exact" and version == "0":
        why = 'Forbidden: resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        raise _invalid("resourceVersionMatch", why, "FieldValueForbidden")


def _invalid(field: str, text: str, reason: str) -> StatusError:
    return errors.invalid("meta.k8s.io", "ListOptions", "", [Cause(reason, text, field)])


@dataclass(frozen=True, slots=True)
class Page:
    records: list[Record]
    version: int
    token: str = ""
    remaining: int | None = None

    @property
    def metadata(self) -> Object:
        metadata: Object = {"resourceVersion": str(self.version)}
        if self.token:
            metadata["continue"] = self.token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


@dataclass(frozen=True, slots=True)
class _Snapshot:
    records: list[Record]
    version: int


class Lists:
    """Lists of one server; it remembers the states that unfinished lists began with."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._snapshots: OrderedDict[int, _Snapshot] = OrderedDict()
        self._numbers = itertools.count(1)

    def page(self, target: Target, wanted: ListRequest) -> Page:
        """The page that is asked for; 410 when its state is forgotten."""
        selects = wanted.predicate(target.resource)
        if wanted.token:
            number, offset, after = _read_token(wanted.token)
            if wanted.version and wanted.version != "0":
                raise errors.bad_request(
                    "specifying resource version is not allowed when using continue"
                )
            snapshot = self._continued(target, number, after, selects)
            if number < 0:
                offset = 0
        else:
            snapshot = self._begin(target, wanted, selects)
            number, offset = 0, 0
        records = snapshot.records
        end = len(records) if wanted.limit <= 0 else offset + wanted.limit
        if end >= len(records):
            return Page(records[offset:], snapshot.version)
        if number <= 0:
            number = self._remember(snapshot)
        token = _write_token(number, end, records[end - 1])
        remaining = len(records) - end if selects is None else None
        return Page(records[offset:end], snapshot.version, token, remaining)

    def render(self, resource: Resource, accepted: Accepted, page: Page) -> bytes:
        return render_list(resource, accepted, page.records, page.metadata)

    def _begin(self, target: Target, wanted: ListRequest, selects: Predicate | None) -> _Snapshot:
        storage = self._storage
        current = storage.revision
        version = int(wanted.version or 0)
        if version > current:
            details: dict[str, Any] = {
                "causes": [
                    {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
                ],
                "retryAfterSeconds": 1,
            }
            text = f"Timeout: Too large resource version: {version}, current: {current}"
            raise StatusError(504, "Timeout", text, details)
        if wanted.match == "Exact" or (version and wanted.limit and not wanted.match):
            if version < storage.compacted:
                raise errors.expired(
                    f"The provided resource version is too old: {version} ({storage.compacted})"
                )
            records = storage.list_at(target.resource.storage, target.namespace or None, version)
        else:
            records = storage.list(target.resource.storage, target.namespace or None)
            version = current
        return _Snapshot(_selected(records, selects), version)

    def _continued(
        self, target: Target, number: int, after: tuple[str, str], selects: Predicate | None
    ) -> _Snapshot:
        storage = self._storage
        if number >= 0:
            snapshot = self._snapshots.get(number)
            if snapshot is not None and snapshot.version >= storage.compacted:
                return snapshot
            error = errors.expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter, or use the continue "
                "token in this response to retrieve the remainder of the results. Continuing with "
                "the provided token results in an inconsistent list - objects that were created, "
                "modified, or deleted between the time the first chunk was returned and now may "
                "show up in the list."
            )
            error.metadata = {"continue": _encode_token([-1, 0, *after])}
            raise error
        records = storage.list(target.resource.storage, target.namespace or None)
        rest = [record for record in records if (record.namespace, record.name) > after]
        return _Snapshot(_selected(rest, selects), storage.revision)

    def _remember(self, snapshot: _Snapshot) -> int:
        number = next(self._numbers)
        self._snapshots[number] = snapshot
        if len(self._snapshots) > SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return number


def _selected(records: list[Record], selects: Predicate | None) -> list[Record]:
    return records if selects is None else [r for r in records if selects(r.object)]


def _encode_token(parts: list[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def _write_token(number: int, offset: int, last: Record) -> str:
    return _encode_token([number, offset, last.namespace, last.name])


@lru_cache(maxsize=64)
def _read_token(token: str) -> tuple[int, int, tuple[str, str]]:
    try:
        parts = msgspec.json.decode(
            base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)),
            type=tuple[int, int, str, str],
        )
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise errors.bad_request("continue key is not valid: incorrect encoding") from error
    return parts[0], parts[1], (parts[2], parts[3])
