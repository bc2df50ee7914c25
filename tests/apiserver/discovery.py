"""Discovery: which groups, versions and resources there are, in both forms that clients ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.apiserver import errors
from tests.apiserver.http import Request, Response, json_response
from tests.apiserver.kinds import Kinds, Object, Resource

_AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_SUBRESOURCE_KINDS: dict[str, tuple[str, str, str]] = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_SUBRESOURCE_VERBS: dict[str, list[str]] = {
    "binding": ["create"],
    "eviction": ["create"],
    "token": ["create"],
    "finalize": ["update"],
}
_CREATE_ONLY: dict[tuple[str, str], tuple[tuple[str, str, bool], ...]] = {
    ("", "v1"): (("bindings", "Binding", True),),
    ("authentication.k8s.io", "v1"): (
        ("selfsubjectreviews", "SelfSubjectReview", False),
        ("tokenreviews", "TokenReview", False),
    ),
    ("authorization.k8s.io", "v1"): (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
        ("subjectaccessreviews", "SubjectAccessReview", False),
    ),
}
"""Kinds that are asked, not stored; see reviews.py."""


class Discovery:
    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds

    def answer(self, path: str, request: Request) -> Response:
        """/api, /apis, /apis/GROUP, /api/v1, /apis/GROUP/VERSION; 404 for what is not there."""
        if request.method != "GET":
            raise errors.method_not_allowed()
        parts = path.strip("/").split("/")
        if path == "/":
            return json_response({"paths": ["/api", "/apis", "/healthz", "/openapi", "/version"]})
        if parts in (["api"], ["apis"]):
            return self._root(parts[0], request)
        groups = self._groups()
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups and parts[1]:
            found = _group(parts[1], groups[parts[1]])
            return json_response({"kind": "APIGroup", "apiVersion": "v1", **found})
        group, version = ("", parts[-1]) if parts[0] == "api" else (parts[1], parts[-1])
        if len(parts) == (2 if parts[0] == "api" else 3) and version in groups.get(group, ()):
            return json_response(self._resources(group, version))
        raise errors.no_such_path()

    def _groups(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        served = [(r.group, r.version) for r in self._kinds.all()]
        for group, version in [*served, *_CREATE_ONLY]:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found

    def _root(self, root: str, request: Request) -> Response:
        groups = self._groups()
        wanted = [""] if root == "api" else [group for group in groups if group]
        if _wants_aggregated(request.headers.get("accept", "")):
            body = {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": [self._aggregated(group, groups[group]) for group in wanted],
            }
            response = json_response(body)
            response.content_type = _AGGREGATED
            return response
        if root == "api":
            return json_response({"kind": "APIVersions", "versions": groups[""]})
        listed = [_group(group, groups[group]) for group in wanted]
        return json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})

    def _of(self, group: str, version: str) -> Iterable[Resource]:
        return (r for r in self._kinds.all() if (r.group, r.version) == (group, version))

    def _resources(self, group: str, version: str) -> Object:
        listed: list[Object] = []
        for resource in self._of(group, version):
            entry: Object = {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
            }
            if resource.short_names:
                entry["shortNames"] = list(resource.short_names)
            if resource.categories:
                entry["categories"] = list(resource.categories)
            listed.append(entry)
            for name in resource.subresources:
                subresource: Object = {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "kind": resource.kind,
                    "verbs": _SUBRESOURCE_VERBS.get(name, ["get", "patch", "update"]),
                }
                if name in _SUBRESOURCE_KINDS:
                    kind = _SUBRESOURCE_KINDS[name]
                    subresource.update(zip(("group", "version", "kind"), kind, strict=True))
                listed.append(subresource)
        for plural, kind_name, namespaced in _CREATE_ONLY.get((group, version), ()):
            listed.append(
                {
                    "name": plural,
                    "singularName": kind_name.lower(),
                    "namespaced": namespaced,
                    "kind": kind_name,
                    "verbs": ["create"],
                }
            )
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": listed,
        }

    def _aggregated(self, group: str, versions: list[str]) -> Object:
        return {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "resources": self._aggregated_resources(group, version),
                    "freshness": "Current",
                }
                for version in versions
            ],
        }

    def _aggregated_resources(self, group: str, version: str) -> list[Object]:
        listed: list[Object] = []
        for flat in self._resources(group, version)["resources"]:
            name, _, subresource = flat["name"].partition("/")
            kind = {
                "group": flat.get("group", group),
                "version": flat.get("version", version),
                "kind": flat["kind"],
            }
            if subresource:
                parent = next(entry for entry in listed if entry["resource"] == name)
                parent.setdefault("subresources", []).append(
                    {"subresource": subresource, "responseKind": kind, "verbs": flat["verbs"]}
                )
                continue
            entry: dict[str, Any] = {
                "resource": name,
                "responseKind": kind,
                "scope": "Namespaced" if flat["namespaced"] else "Cluster",
                "singularResource": flat["singularName"],
                "verbs": flat["verbs"],
            }
            for field in ("shortNames", "categories"):
                if field in flat:
                    entry[field] = flat[field]
            listed.append(entry)
        return listed


def _wants_aggregated(accept: str) -> bool:
    """Whether the v2 form is among those asked for; older forms of it are not served."""
    wanted = {"as=APIGroupDiscoveryList", "v=v2", "g=apidiscovery.k8s.io"}
    clauses = (clause.split(";") for clause in accept.split(","))
    return any(wanted <= {part.strip() for part in clause} for clause in clauses)


def _group(group: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}
