"""What the service accounts asked the API server for, and which rules of their roles that used."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

PREFIX = "system:serviceaccount:podstamp-system:"


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a service account; `name` is empty for collections and creates."""

    account: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class Permission:
    """One verb on one resource that a role gives; no namespace: everywhere. No name: any."""

    account: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, request: Request) -> bool:
        return (
            (self.account, self.verb, self.group, self.resource)
            == (request.account, request.verb, request.group, request.resource)
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
        )


def requests(log: Path) -> Iterator[Request]:
    """Of the audit log; requests that are not for a resource (discovery, health) are left out."""
    with log.open("rb") as lines:
        for line in lines:
            event = msgspec.json.decode(line)
            target = event.get("objectRef", {})
            if "resource" not in target:
                continue
            resource = target["resource"]
            if subresource := target.get("subresource"):
                resource = f"{resource}/{subresource}"
            yield Request(
                account=event["user"]["username"].removeprefix(PREFIX),
                verb=event["verb"],
                group=target.get("apiGroup", ""),
                resource=resource,
                namespace=target.get("namespace", ""),
                name=target.get("name", ""),
                allowed=event["annotations"].get("authorization.k8s.io/decision") == "allow",
            )


def permissions(manifests: Collection[Mapping[str, Any]]) -> Iterator[Permission]:
    """Of the roles; each has the name of its account, or is for a kind of router."""
    for manifest in manifests:
        metadata = manifest["metadata"]
        if manifest["kind"] not in ("Role", "ClusterRole"):
            continue
        account = metadata["name"]
        if account.startswith("podstamp-router-"):
            account = "podstamp-controller"
        for rule in manifest["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        for verb in rule["verbs"]:
                            yield Permission(
                                account=account,
                                verb=verb,
                                group=group,
                                resource=resource,
                                namespace=metadata.get("namespace", ""),
                                name=name,
                            )
