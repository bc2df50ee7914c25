"""Random writes to a few pods, and answers made comparable between two servers.

A write is drawn without looking at a server, so two servers get the very same requests, apart
from versions and UIDs that each read from its own answers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx

from tests.contract.api import JSON_PATCH, MERGE, STRATEGIC, Api, Object, pod

OTHER_UID = "11111111-1111-4111-8111-111111111111"
NAMES = ("a", "b", "c")


class Site:
    """One server's pods, with the objects that were read there to be written later."""

    def __init__(self, api: Api, path: str) -> None:
        self.api = api
        self.path = path
        self.read: dict[str, Object] = {}

    def remember(self, name: str) -> None:
        found = self.api.get(f"{self.path}/{name}")
        if found.status_code == 200:
            self.read[name] = found.json()


class Step(NamedTuple):
    """One request; `said` tells a person what it is."""

    said: str
    send: Callable[[Site], httpx.Response]


def draw(rng: random.Random) -> Step:
    """One step, of a kind that is drawn too."""
    name = rng.choice(NAMES)
    dry_run = {"dryRun": "All"} if rng.random() < 0.08 else {}
    return rng.choice(_DRAWS)(rng, name, dry_run)


def _create(rng: random.Random, name: str, query: Object) -> Step:
    metadata: Object = {}
    if rng.random() < 0.3:
        metadata["finalizers"] = rng.sample(["x.dev/a", "x.dev/b"], rng.randint(1, 2))
    if rng.random() < 0.3:
        metadata["labels"] = {rng.choice("jk"): rng.choice(["v", "", "bad value", "w"])}
    if rng.random() < 0.3:
        metadata["annotations"] = {"an": rng.choice(["1", ""])}
    body = pod(name, node=rng.choice(["", "", "n1"]), **metadata)
    spec = body["spec"]
    if rng.random() < 0.2:
        spec["terminationGracePeriodSeconds"] = rng.choice([0, 5, -1])
    if rng.random() < 0.15:
        listed = rng.choice([{"name": "x", "value": "y"}, {"containerPort": 80}, {"name": ""}])
        spec["containers"][0][rng.choice(["env", "ports"])] = [listed]
    if rng.random() < 0.1:
        spec["tolerations"] = [{"key": "a", "operator": "Exists"}]
    return Step(f"create {body} {query}", lambda site: site.api.post(site.path, body, **query))


def _get(rng: random.Random, name: str, query: Object) -> Step:
    return Step(f"get {name}", lambda site: site.api.get(f"{site.path}/{name}"))


_EDITS: dict[str, Callable[[Object], object]] = {
    "labels": lambda o: o["metadata"].update(labels={"p": "q"}),
    "no version": lambda o: o["metadata"].pop("resourceVersion"),
    "another uid": lambda o: o["metadata"].update(uid=OTHER_UID),
    "image": lambda o: o["spec"]["containers"][0].update(image="new:1"),
    "hostname": lambda o: o["spec"].update(hostname="h"),
    "finalizers": lambda o: o["metadata"].update(finalizers=["x.dev/c"]),
    "no deletion": lambda o: o["metadata"].pop("deletionTimestamp", None),
    "nothing": lambda o: None,
}


def _put(rng: random.Random, name: str, query: Object) -> Step:
    edit = rng.choice(sorted(_EDITS))
    subresource = rng.choice(["", "", "/status"])
    when = rng.random() < 0.5

    def send(site: Site) -> httpx.Response:
        if when:
            site.remember(name)
        if name not in site.read:
            return site.api.get(f"{site.path}/{name}")
        body = site.read[name]
        body = {**body, "metadata": {**body["metadata"]}, "spec": {**body["spec"]}}
        body["spec"]["containers"] = [dict(c) for c in body["spec"]["containers"]]
        _EDITS[edit](body)
        return site.api.put(f"{site.path}/{name}{subresource}", body, **query)

    return Step(f"put{subresource} {name} {edit} {query}", send)


_MERGES: tuple[Object, ...] = (
    {"metadata": {"labels": {"k": "v"}}},
    {"metadata": {"labels": {"k": None}}},
    {"metadata": {"annotations": None}},
    {"metadata": {"finalizers": ["x.dev/a"]}},
    {"metadata": {"finalizers": []}},
    {"metadata": {"uid": OTHER_UID}},
    {"metadata": {"name": "zz"}},
    {"metadata": {"namespace": "zz"}},
    {"metadata": {"resourceVersion": ""}},
    {"metadata": {"resourceVersion": "1"}},
    {"metadata": {"deletionTimestamp": None}},
    {"metadata": {"generation": 99}},
    {"metadata": {"creationTimestamp": None}},
    {"kind": "Foo"},
    {"spec": {"activeDeadlineSeconds": 30}},
    {"spec": {"nodeName": "n2"}},
    {"spec": {"containers": None}},
    {"spec": {"tolerations": None}},
    {"spec": {"bogus": 1}},
    {"status": {"phase": "Failed"}},
)
_STRATEGIC: tuple[Object, ...] = (
    {"metadata": {"labels": {"k": "s"}}},
    {"metadata": {"finalizers": ["x.dev/b"]}},
    {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.dev/a"]}},
    {"metadata": {"annotations": {"$patch": "replace"}}},
    {"spec": {"containers": [{"name": "server", "image": "st:1"}]}},
    {"spec": {"containers": [{"name": "server", "$patch": "delete"}]}},
    {"spec": {"containers": [{"name": "new", "image": "x"}]}},
    {"spec": {"tolerations": [{"key": "q", "operator": "Exists"}]}},
)
_JSON: tuple[Object, ...] = (
    {"op": "add", "path": "/metadata/labels", "value": {"j": "p"}},
    {"op": "remove", "path": "/metadata/labels/k"},
    {"op": "add", "path": "/metadata/annotations/x~1y", "value": "1"},
    {"op": "test", "path": "/metadata/labels/k", "value": "v"},
    {"op": "test", "path": "/metadata/uid", "value": "x"},
    {"op": "remove", "path": "/metadata/finalizers"},
    {"op": "remove", "path": "/metadata/finalizers/0"},
    {"op": "replace", "path": "/spec/containers/0/image", "value": "j:1"},
    {"op": "add", "path": "/spec/containers/-", "value": {"name": "n2", "image": "i"}},
)
_STATUS: tuple[Object, ...] = (
    {"phase": "Running"},
    {"phase": "Failed", "reason": "x"},
    {"phase": "Succeeded"},
    {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    {"conditions": [{"type": "Ready", "status": "True"}]},
    {
        "containerStatuses": [
            {"name": "server", "ready": True, "restartCount": 1, "image": "i", "imageID": "i",
             "state": {"running": {}}}
        ]
    },
)  # fmt: skip
_BESIDES: tuple[Object, ...] = (
    {},
    {"metadata": {"labels": {"s": "t"}}},
    {"metadata": {"uid": OTHER_UID}},
    {"metadata": {"finalizers": None}},
    {"spec": {"nodeName": "n9"}},
)


def _patch(rng: random.Random, name: str, query: Object) -> Step:
    kind = rng.choice([MERGE, MERGE, STRATEGIC, JSON_PATCH])
    body: object = rng.choice(_MERGES if kind == MERGE else _STRATEGIC)
    if kind == JSON_PATCH:
        body = [rng.choice(_JSON)]
    return Step(
        f"patch {name} {body} {kind} {query}",
        lambda site: site.api.patch(f"{site.path}/{name}", body, kind, **query),
    )


def _status(rng: random.Random, name: str, query: Object) -> Step:
    body = {**rng.choice(_BESIDES), "status": rng.choice(_STATUS)}
    kind = rng.choice([MERGE, STRATEGIC])
    return Step(
        f"status {name} {body} {kind} {query}",
        lambda site: site.api.patch(f"{site.path}/{name}/status", body, kind, **query),
    )


def _delete(rng: random.Random, name: str, query: Object) -> Step:
    options: Object = {}
    if rng.random() < 0.6:
        options["gracePeriodSeconds"] = rng.choice([0, 0, 1, 5, 60])
    wanted = rng.choice(["", "", "uid", "resourceVersion", "stale uid", "stale version"])

    def send(site: Site) -> httpx.Response:
        body = dict(options)
        found = site.api.get(f"{site.path}/{name}").json()["metadata"]
        if wanted in ("uid", "resourceVersion"):
            body["preconditions"] = {wanted: found.get(wanted, "1")}
        elif wanted:
            field = {"stale uid": ("uid", OTHER_UID), "stale version": ("resourceVersion", "1")}
            key, value = field[wanted]
            body["preconditions"] = {key: value}
        return site.api.delete(f"{site.path}/{name}", body or None, **query)

    return Step(f"delete {name} {options} {wanted} {query}", send)


def _bind(rng: random.Random, name: str, query: Object) -> Step:
    metadata = {"name": name, "annotations": {"bound": "1"}}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata,
            "target": {"kind": "Node", "name": "n1"}}  # fmt: skip
    path = f"{name}/binding"
    return Step(
        f"bind {name} {query}", lambda site: site.api.post(f"{site.path}/{path}", body, **query)
    )


def _evict(rng: random.Random, name: str, query: Object) -> Step:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"{name}/eviction"
    return Step(
        f"evict {name} {query}", lambda site: site.api.post(f"{site.path}/{path}", body, **query)
    )


_DRAWS = (_create, _create, _get, _put, _patch, _patch, _patch, _status, _delete, _delete, _bind,
          _evict)  # fmt: skip

_SERVERS_OWN = frozenset(
    {"resourceVersion", "managedFields", "lastTransitionTime", "volumes", "volumeMounts"}
)
_TIMES = frozenset({"creationTimestamp", "deletionTimestamp"})


def comparable(value: Any, namespace: str) -> Any:
    """Without what two servers cannot share: versions, times, UIDs, names of the namespace.

    Volumes are left out: the real server mounts the service account's token.
    """
    if isinstance(value, dict):
        return {
            key: "set" if key in _TIMES else comparable(item, namespace)
            for key, item in value.items()
            if key not in _SERVERS_OWN
        }
    if isinstance(value, list):
        return [comparable(item, namespace) for item in value]
    if not isinstance(value, str):
        return value
    text = value.replace(namespace, "NAMESPACE").replace("Key: /registry/", "Key: /")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r"(record|precondition) \(\d+\)", r"\1 (N)", text)
    if "patch: Invalid value" in text or text.startswith('Invalid value: "{'):
        return "the patched object is quoted"  # with its managed fields
    return re.sub(r"(pod updates may not change fields).*", r"\1", text, flags=re.DOTALL)
