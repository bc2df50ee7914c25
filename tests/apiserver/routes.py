"""Paths to handlers: what each method on each path of the API does.

Invariant: a path is read once into a Target; verbs are those that the real server's authorizer
and audit log would name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.apiserver import errors, json_patch, patch
from tests.apiserver.accept import Accepted, negotiate
from tests.apiserver.authentication import Authentication
from tests.apiserver.call import Call, DeleteOptions, Target, User
from tests.apiserver.deletion import Deletion
from tests.apiserver.discovery import Discovery
from tests.apiserver.http import (
    Request,
    Response,
    Stream,
    json_response,
    parse_json,
    parse_object,
)
from tests.apiserver.kinds import Kinds, Object, Resource
from tests.apiserver.lists import ListRequest, Lists
from tests.apiserver.openapi import OpenAPI
from tests.apiserver.registry import Registry
from tests.apiserver.reviews import Reviews
from tests.apiserver.scheduling import Scheduling
from tests.apiserver.storage import Record, TooOld
from tests.apiserver.views import render
from tests.apiserver.watch import BOOKMARK_EVERY_S, bookmark_line, open_watch

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_HEALTH = ("/healthz", "/livez", "/readyz")


@dataclass(frozen=True, slots=True)
class Place:
    """A path under /api or /apis, taken apart."""

    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def place_of(path: str) -> Place | None:
    """None when the path names no group and version."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if len(rest) >= 2 and rest[0] == "namespaces":
        if len(rest) == 2 or rest[2] in ("status", "finalize"):
            return Place(group, version, "namespaces", "", rest[1], "/".join(rest[2:]))
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    if len(rest) > 3:
        subresource = "/".join(rest[2:])
    return Place(group, version, plural, namespace, name, subresource)


class Routes:
    def __init__(
        self,
        registry: Registry,
        deletion: Deletion,
        scheduling: Scheduling,
        authentication: Authentication,
        discovery: Discovery,
        openapi: OpenAPI,
        version: Object,
        bookmark_every_s: float = BOOKMARK_EVERY_S,
    ) -> None:
        self._registry = registry
        self._deletion = deletion
        self._scheduling = scheduling
        self._kinds: Kinds = registry.kinds
        self._authentication = authentication
        self._discovery = discovery
        self._openapi = openapi
        self._version = version
        self._bookmark_every_s = bookmark_every_s
        self._lists = Lists(registry.storage)
        self._reviews = Reviews(registry.storage, registry.kinds, scheduling, authentication)

    def authenticate(self, request: Request) -> User:
        if request.path in (*_HEALTH, "/version"):
            return User("system:anonymous", ("system:unauthenticated",))
        return self._authentication.authenticate(request.headers, request.header_list)

    def verb(self, request: Request) -> str:
        if request.method != "GET":
            verb = _VERBS.get(request.method, request.method.lower())
            if verb == "delete":
                place = place_of(request.path)
                return "deletecollection" if place and place.plural and not place.name else verb
            return verb
        place = place_of(request.path)
        if place is None or not place.plural:
            return "get"
        if place.name:
            return "get"
        return "watch" if request.query.get("watch") in ("true", "1") else "list"

    async def handle(self, request: Request) -> Response | Stream:
        path = request.path
        if path in _HEALTH:
            return Response(b"ok", content_type=b"text/plain; charset=utf-8")
        if path == "/version" or path == "/version/":
            return json_response(self._version)
        if path.startswith("/openapi/"):
            return self._openapi.answer(path, request)
        place = place_of(path)
        if place is None or not place.plural:
            return self._discovery.answer(path, request)
        resource = self._kinds.find(place.group, place.version, place.plural)
        if resource is None:
            special = self._reviews.find(place)
            if special is None:
                raise errors.no_such_path()
            if request.method != "POST":
                raise errors.method_not_allowed()
            call = self._call(request)
            return json_response(await special(call, place, await request.object()), 201)
        if place.namespace and not resource.namespaced:
            raise errors.no_such_path()
        if place.subresource and place.subresource not in resource.subresources:
            raise errors.no_such_path()
        target = Target(resource, place.namespace, place.name, place.subresource)
        return await self._object(request, target)

    async def _object(self, request: Request, target: Target) -> Response | Stream:
        resource, method = target.resource, request.method
        if method == "GET":
            if not target.name:
                return await self._collection(request, target)
            if target.subresource not in ("", "status", "ephemeralcontainers", "resize"):
                raise errors.method_not_allowed()
            accepted = negotiate(request.headers.get("accept", ""))
            record = self._registry.get(target)
            return Response(render(resource, accepted, record))
        if method == "POST":
            if target.subresource in ("binding", "eviction", "token"):
                return await self._pod_action(request, target)
            if target.name or (resource.namespaced and not target.namespace):
                raise errors.method_not_allowed()
            call = self._call(request)
            record = await self._registry.create(call, target, await request.object())
            return self._written(request, resource, call, record, 201)
        if target.subresource in ("binding", "eviction", "token"):
            raise errors.method_not_allowed()
        if method == "DELETE":
            if target.subresource:
                raise errors.method_not_allowed()
            return await (self._delete if target.name else self._delete_collection)(request, target)
        if not target.name or method not in ("PUT", "PATCH"):
            raise errors.method_not_allowed()
        call = self._call(request)
        if method == "PUT":
            body = await request.object()
            record, created = await self._registry.update(call, target, body)
            return self._written(request, resource, call, record, 201 if created else 200)
        record = await self._registry.patch(call, target, await self._patch(request, resource))
        return self._written(request, resource, call, record, 200)

    # writes

    def _call(self, request: Request) -> Call:
        query = request.query
        dry_run = [value for key, value in request.query_lists if key == "dryRun"]
        if any(value != "All" for value in dry_run):
            raise _invalid_options("dryRun", dry_run[0], "All")
        validation = query.get("fieldValidation") or "Warn"
        if validation not in ("Ignore", "Warn", "Strict"):
            raise _invalid_options("fieldValidation", validation, "Ignore", "Strict", "Warn")
        manager = query.get("fieldManager") or ""
        return Call(request.user, bool(dry_run), validation, manager, request.warnings)

    def _written(
        self, request: Request, resource: Resource, call: Call, record: Record, status: int
    ) -> Response:
        accepted = negotiate(request.headers.get("accept", ""))
        return Response(render(resource, accepted, record), status)

    async def _patch(self, request: Request, resource: Resource) -> Callable[[Object], Object]:
        kind, body = request.content_type, await request.body()
        allowed = [patch.JSON_PATCH, patch.MERGE_PATCH]
        if not resource.custom:
            allowed.append(patch.STRATEGIC_MERGE)
        if kind not in allowed:
            raise errors.unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: "
                + ", ".join(allowed)
            )
        operations = parse_json(body)
        if kind == patch.JSON_PATCH:
            return lambda obj: _object_or_400(json_patch.apply(obj, operations))
        if not isinstance(operations, dict):
            raise errors.bad_request("error decoding patch: the body is no JSON object")
        if kind == patch.MERGE_PATCH:
            return lambda obj: _object_or_400(patch.merge_patch(obj, operations))
        return lambda obj: _object_or_400(patch.strategic_merge(obj, operations))

    async def _pod_action(self, request: Request, target: Target) -> Response:
        call, body = self._call(request), await request.object()
        if target.subresource == "token":
            return json_response(await self._reviews.token(call, target, body), 201)
        self._registry.get(target)
        if target.subresource == "binding":
            await self._scheduling.bind(call, target, body)
        else:
            given = body.get("deleteOptions") or {}
            call.dry_run = call.dry_run or bool(given.get("dryRun"))
            await self._scheduling.evict(call, target, body, _delete_options(given))
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return json_response({**status, "code": 201}, 201)

    async def _delete(self, request: Request, target: Target) -> Response:
        call, options = await self._delete_options_of(request)
        record, gone = await self._deletion.delete(call, target, options)
        resource = target.resource
        if not gone or resource.returns_deleted:
            return self._written(request, resource, call, record, 200)
        details: Object = {"name": target.name, "kind": resource.plural}
        if resource.group:
            details["group"] = resource.group
        details["uid"] = record.object["metadata"]["uid"]
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return json_response({**status, "details": details})

    async def _delete_collection(self, request: Request, target: Target) -> Response:
        if "deletecollection" not in target.resource.verbs:
            raise errors.method_not_allowed()
        call, options = await self._delete_options_of(request)
        query = ListRequest.of(request.query)
        page = self._lists.page(target, query)
        for record in page.records:
            item = Target(target.resource, record.namespace, record.name)
            try:
                await self._deletion.delete(call, item, options)
            except errors.StatusError as error:
                if error.code != 404:
                    raise
        accepted = negotiate(request.headers.get("accept", ""))
        return Response(self._lists.render(target.resource, accepted, page))

    async def _delete_options_of(self, request: Request) -> tuple[Call, DeleteOptions]:
        """From the body; only without one from the query, as on the real server."""
        call = self._call(request)
        body = await request.body()
        if body.strip():
            given = parse_object(body, request.content_type)
            if given.get("kind", "DeleteOptions") != "DeleteOptions":
                raise errors.bad_request(f"{given['kind']} cannot be handled as DeleteOptions")
        else:
            given = _delete_options_in(request)
        if any(value != "All" for value in given.get("dryRun") or ()):
            raise _invalid_options("dryRun", str(given["dryRun"][0]), "All")
        call.dry_run = bool(given.get("dryRun"))
        return call, _delete_options(given)

    # reads

    async def _collection(self, request: Request, target: Target) -> Response | Stream:
        if self.verb(request) == "watch":
            return self._watch(request, target)
        accepted = negotiate(request.headers.get("accept", ""))
        page = self._lists.page(target, ListRequest.of(request.query))
        return Response(self._lists.render(target.resource, accepted, page))

    def _watch(self, request: Request, target: Target) -> Stream:
        resource, query = target.resource, request.query
        wanted = ListRequest.of(query, watch=True)
        accepted = negotiate(request.headers.get("accept", ""))
        timeout_s = float(wanted.timeout_s or random.uniform(1800, 3600))
        every = (
            self._bookmark_every_s if query.get("allowWatchBookmarks") in ("true", "1") else None
        )
        storage = self._registry.storage
        try:
            watch = open_watch(
                storage,
                resource.storage,
                target.namespace,
                "" if wanted.initial_events else wanted.version,
                wanted.predicate(resource),
                watch_view(resource, accepted),
                resource.api_version,
                resource.kind,
            )
        except TooOld as oldest:
            gone = errors.expired(f"too old resource version: {wanted.version} ({oldest})")
            return Stream(None, timeout_s, None, gone.status)
        stream = Stream(watch, timeout_s, every)
        if wanted.initial_events and every is not None:
            stream.after_initial = bookmark_line(
                resource.api_version, resource.kind, storage.revision, initial_events_end=True
            )
        return stream


def watch_view(resource: Resource, accepted: Accepted) -> Callable[[Record], bytes]:
    """How one watch shows a record; a Table tells its columns once."""
    first = [True]

    def view(record: Record) -> bytes:
        if not accepted.kind:
            return render(resource, accepted, record)
        shown = render(resource, accepted, record, with_columns=first[0])
        first[0] = False
        return shown

    return view


def _object_or_400(value: Any) -> Object:
    if not isinstance(value, dict):
        raise errors.bad_request("the patched document is no JSON object")
    return value


def _invalid_options(field: str, value: str, *allowed: str) -> errors.StatusError:
    listed = ", ".join(f'"{item}"' for item in allowed)
    text = f'Unsupported value: "{value}": supported values: {listed}'
    cause = errors.Cause("FieldValueNotSupported", text, field)
    return errors.invalid("meta.k8s.io", "CreateOptions", "", [cause])


def _delete_options_in(request: Request) -> Object:
    """DeleteOptions from query parameters."""
    query = request.query
    given: Object = {}
    if "gracePeriodSeconds" in query:
        try:
            given["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
        except ValueError as error:
            shown = query["gracePeriodSeconds"]
            raise errors.bad_request(f"gracePeriodSeconds: {shown!r} is no number") from error
    if "propagationPolicy" in query:
        given["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        given["orphanDependents"] = query["orphanDependents"] == "true"
    if dry_run := [value for key, value in request.query_lists if key == "dryRun"]:
        given["dryRun"] = dry_run
    return given


def _delete_options(given: Object) -> DeleteOptions:
    preconditions = given.get("preconditions") or {}
    propagation = given.get("propagationPolicy")
    if propagation is None and given.get("orphanDependents"):
        propagation = "Orphan"
    return DeleteOptions(
        given.get("gracePeriodSeconds"),
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        propagation,
        {key: value for key, value in given.items() if key not in ("kind", "apiVersion")},
    )
