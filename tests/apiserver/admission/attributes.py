"""What admission knows of one request, apart from the objects themselves.

One record serves webhooks (as an AdmissionReview's request), CEL (as `request`) and the
texts of refusals. Warnings are the only part that grows while a request is admitted.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Attributes:
    """One request. `group`, `version` and `resource` are those of the URL.

    `kind` and `kind_group`, `kind_version` are those of the object in the body, which differs
    from the resource's own for subresources such as pods/binding; unset ones are the resource's.
    `namespace` of a Namespace object is its own name, as in Kubernetes.
    """

    operation: Operation
    group: str = ""
    version: str = "v1"
    resource: str
    subresource: str = ""
    kind: str
    kind_group: str | None = None
    kind_version: str | None = None
    namespace: str = ""
    name: str = ""
    username: str = ""
    groups: tuple[str, ...] = ()
    user_uid: str = ""
    extra: dict[str, list[str]] = field(default_factory=dict)
    options: Json | None = None
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)

    @property
    def qualified_resource(self) -> str:
        """`pods`, or `podsets.orchestration.aibrix.ai`: how messages name a resource."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def request(self) -> Json:
        """The fields of an AdmissionReview's request that tell no object and no uid."""
        kind = {
            "group": self.group if self.kind_group is None else self.kind_group,
            "version": self.version if self.kind_version is None else self.kind_version,
            "kind": self.kind,
        }
        resource = {"group": self.group, "version": self.version, "resource": self.resource}
        user: Json = {"username": self.username}
        if self.user_uid:
            user["uid"] = self.user_uid
        if self.groups:
            user["groups"] = list(self.groups)
        if self.extra:
            user["extra"] = self.extra
        request: Json = {
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "operation": self.operation,
            "userInfo": user,
            "dryRun": self.dry_run,
            "options": self.options,
        }
        if self.subresource:
            request["subResource"] = request["requestSubResource"] = self.subresource
        if self.name:
            request["name"] = self.name
        if self.namespace:
            request["namespace"] = self.namespace
        return request


def display_name(attributes: Attributes, obj: Json | None) -> str:
    """The name that a refusal shows; before a generated name exists, its prefix."""
    if attributes.name:
        return attributes.name
    metadata = (obj or {}).get("metadata") or {}
    return metadata.get("name") or metadata.get("generateName") or "Unknown"
