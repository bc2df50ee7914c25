"""Builders for engines and their surroundings in tests of the routers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from controller.routers.desired import Backend, Desired
from controller.routers.engines import Engine, EngineKey, family_of
from kube.pod import Pod

BORN = datetime(2026, 1, 1, tzinfo=UTC)


def pod_json(
    name: str,
    ip: str = "10.0.0.1",
    *,
    uid: str = "",
    namespace: str = "models",
    ready: bool | str = True,
    phase: str = "Running",
    terminating: bool = False,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    ips: Sequence[str] | None = None,
    ports: Sequence[tuple[str, int]] = (("http", 8000),),
    restarts: int = 0,
    gates: Mapping[str, str] | None = None,
    age_s: float = 0.0,
    version: str = "1",
) -> dict[str, Any]:
    """A managed pod as the API server writes it; `age_s` counts from BORN, later is younger."""
    status = ready if isinstance(ready, str) else str(ready)
    conditions = [{"type": "Ready", "status": status}]
    conditions += [{"type": t, "status": s} for t, s in (gates or {}).items() if s]
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": version,
        "creationTimestamp": (BORN + timedelta(seconds=age_s)).isoformat(),
        "labels": {"podstamp.dev/managed": "true", "app": "vllm", **(labels or {})},
        "annotations": {
            "podstamp.dev/incarnation": f"incarnation-of-{uid or name}",
            **(annotations or {}),
        },
    }
    if terminating:
        metadata["deletionTimestamp"] = BORN.isoformat()
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {
                    "name": "engine",
                    "image": "engine",
                    "ports": [{"name": n, "containerPort": p} for n, p in ports],
                },
                {"name": "sidecar", "image": "sidecar", "ports": []},
            ],
            "readinessGates": [{"conditionType": t} for t in (gates or {})],
        },
        "status": {
            "phase": phase,
            "podIP": ip,
            "podIPs": [{"ip": entry} for entry in (ips if ips is not None else [ip] if ip else [])],
            "conditions": conditions,
            "containerStatuses": [
                {"name": "engine", "restartCount": restarts, "containerID": f"c://{restarts}"},
                {"name": "sidecar", "restartCount": 0, "containerID": "c://side"},
            ],
        },
    }


def pod(*args: Any, **kwargs: Any) -> Pod:
    """`pod_json`, decoded as a reflector does."""
    return msgspec.convert(pod_json(*args, **kwargs), Pod, strict=False)


def engine(
    name: str = "e1",
    url: str = "http://10.0.0.1:8000",
    *,
    uid: str = "",
    restarts: int = 0,
    model_label: str = "",
    lora_modified_ns: int | None = None,
    ready: bool = True,
    terminating: bool = False,
    node: str = "",
    zone: str = "",
    more_addresses: Sequence[str] = (),
) -> Engine:
    """An engine at `url`."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    address = host.strip("[]")
    assert family_of(address)
    return Engine(
        key=EngineKey(
            uid=uid or f"uid-{name}",
            url=url,
            containers=(("engine", restarts, f"c://{restarts}"),),
            model_label=model_label,
            sleeping=False,
            lora_modified_ns=lora_modified_ns,
        ),
        namespace="models",
        name=name,
        incarnation=f"incarnation-of-{uid or name}",
        address=address,
        addresses=(address, *more_addresses),
        port=int(port),
        created=BORN,
        node=node,
        zone=zone,
        ready=ready,
        terminating=terminating,
    )


def backend(
    name: str = "e1",
    url: str = "http://10.0.0.1:8000",
    *,
    models: Sequence[str] = ("base",),
    adapters: Sequence[str] = (),
    **kwargs: Any,
) -> Backend:
    """An engine that has answered."""
    return Backend(engine(name, url, **kwargs), tuple(models), tuple(adapters))


def desired(*backends: Backend) -> Desired:
    """A desired set of these."""
    return Desired({b.engine.url: b for b in backends}, tuple(b.engine for b in backends))
