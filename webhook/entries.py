"""The webhook entry that sends the deletes of fenced deleters to the validating endpoint.

Invariant: its matchConditions name exactly the users and groups of the settings, so that there is
one list; a DELETE of anybody else never waits for the webhook.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from webhook import stamps

if TYPE_CHECKING:
    from webhook.config import FencedDeleters

_HEADER = (
    "# Made by `python -m webhook fenced-deleters --config manifests/overlays/fenced-deleters/"
    "webhook.yaml`;\n# edit the list there.\n"
)


def delete_entry(deleters: FencedDeleters) -> str:
    """A strategic merge patch, as YAML, that adds the entry to the validating configuration."""
    patch = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "podstamp"},
        "webhooks": [_entry(deleters)],
    }
    return _HEADER + yaml.safe_dump(patch, sort_keys=False, width=10**6)


def _entry(deleters: FencedDeleters) -> dict[str, Any]:
    return {
        "name": "delete.validate.podstamp.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "namespace": "podstamp-system",
                "name": "podstamp-webhook",
                "path": "/validate",
                "port": 443,
            }
        },
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "namespaceSelector": {
            "matchLabels": {stamps.ENABLED: "true"},
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "podstamp-system"],
                }
            ],
        },
        "objectSelector": {
            "matchExpressions": [{"key": stamps.ENABLED, "operator": "NotIn", "values": ["false"]}]
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["DELETE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [
            {"name": "fenced-deleter", "expression": _who(deleters)},
            {
                "name": "not-terminating",
                "expression": "oldObject == null || !has(oldObject.metadata.deletionTimestamp)",
            },
        ],
    }


def _who(deleters: FencedDeleters) -> str:
    # A JSON list of strings is a CEL list of strings.
    users, groups = json.dumps(list(deleters.users)), json.dumps(list(deleters.groups))
    return (
        f"request.userInfo.username in {users} || "
        f"(has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in {groups}))"
    )
