"""The roles are as wide as the processes need and no wider; judged last, over the whole run."""

from dataclasses import replace

import yaml

from tests.controlplane import ControlPlane
from tests.e2e.audit import Permission, permissions, requests
from tests.e2e.installation import MANIFESTS, Installation, render

ROLES = [manifest for manifest in yaml.safe_load_all(render(MANIFESTS / "base")) if manifest]


def described(permission: Permission) -> str:
    where = permission.namespace or "everywhere"
    target = "/".join(part for part in (permission.group, permission.resource) if part)
    return f"{permission.account}: {permission.verb} {target} {permission.name} ({where})"


def test_nothing_was_forbidden(plane: ControlPlane, podstamp: Installation) -> None:
    made = set(requests(plane.audit_log))
    allowed = {request for request in made if request.allowed}
    # An API server that has just started forbids what it allows once it has read the roles.
    lacking = {request for request in made if replace(request, allowed=True) not in allowed}
    assert lacking == set()


def test_every_rule_was_used(plane: ControlPlane, podstamp: Installation) -> None:
    made = set(requests(plane.audit_log))
    unused = [p for p in permissions(ROLES) if not any(p.covers(request) for request in made)]
    assert not unused, "no process needed, in a run of all of tests/e2e:\n" + "\n".join(
        described(permission) for permission in unused
    )
