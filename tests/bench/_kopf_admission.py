"""Kopf's webhook server with a handler that makes podstamp's stamps, for comparison.

Prints the URL path to post to once it serves. It runs without an operator around it: the one
resource that an operator would have found is given to it.
"""

import functools
import logging
import sys
from datetime import UTC, datetime
from os import urandom
from typing import Any

import kopf
import uvloop
from kopf._cogs.structs import bodies, ephemera, ids, references
from kopf._core.engines import admission, indexing
from kopf._core.intents import causes, registries
from kopf._core.reactor import inventory

from tests.webhook.builders import NOW_NS
from webhook import stamps
from webhook.adapters import declared_adapters, read_arguments
from webhook.review import Container


def stamp(body: bodies.Body, patch: kopf.Patch, **_: Any) -> None:
    """The handler that an operator's author would write for a new pod."""
    now = datetime.now(UTC)
    meta = body.metadata
    labels, annotations = patch.metadata.labels, patch.metadata.annotations
    labels[stamps.MANAGED] = "true"
    annotations[stamps.INCARNATION] = stamps.new_incarnation(now, urandom(10))
    for owner in meta.get("ownerReferences", ()):
        if owner.get("controller") and owner["kind"] == "PodSet":
            prefix, _, index = meta.get("name", "").rpartition("-")
            labels[stamps.PODSET] = owner["name"]
            if prefix == owner["name"] and index.isdecimal():
                labels[stamps.PODSET_INDEX] = index
                if stamps.AIBRIX_INDEX not in meta.labels:
                    labels[stamps.AIBRIX_INDEX] = index
    containers = [
        Container(command=each.get("command"), args=each.get("args"))
        for each in body.spec.get("containers", ())
    ]
    names = declared_adapters(
        meta.annotations.get(stamps.ADAPTERS), read_arguments(containers)
    ).names
    if names:
        annotations[stamps.ADAPTERS_DIGEST] = stamps.adapters_digest(names)
        annotations[stamps.LORA_MODIFIED] = stamps.format_instant(NOW_NS)


async def serve(port: int, certificate: str, key: str) -> None:
    pods = references.Resource(
        group="", version="v1", plural="pods", kind="Pod", singular="pod", preferred=True,
        shortcuts=frozenset(), categories=frozenset(), subresources=frozenset(),
        namespaced=True, verbs=frozenset(),
    )  # fmt: skip
    registry = registries.SmartOperatorRegistry()
    kopf.on.mutate("pods", operation="CREATE", registry=registry)(stamp)
    insights = references.Insights(webhook_resources={pods})
    insights.ready_resources.set()
    answer = functools.partial(
        admission.serve_admission_request,
        settings=kopf.OperatorSettings(),
        memories=inventory.ResourceMemories(),
        memobase=ephemera.AnyMemo(ephemera.Memo()),
        registry=registry,
        insights=insights,
        indices=indexing.OperatorIndexers().indices,
        reason=causes.WebhookType.MUTATING,
        webhook=ids.HandlerId("stamp"),
    )
    server = kopf.WebhookServer(addr="127.0.0.1", port=port, certfile=certificate, pkeyfile=key)
    async for _ in server(answer):
        print("/stamp", flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
