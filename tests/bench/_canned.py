"""A tiny HTTPS server with any number of pods of 11 KB, for measuring clients.

Invariant: it does next to nothing itself: pages are filled from one template, so that what is
measured is the client.
"""

import argparse
import asyncio
import json
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.pki import TestCa

POD_BYTES = 11 * 1024
_INDEX = "@@@@@@@"


def _container(name: str, image: str, port: int, env: int) -> dict[str, Any]:
    probe = {
        "httpGet": {"path": "/health", "port": port, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    fields = [("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP")]
    return {
        "name": name,
        "image": image,
        "args": ["--model", "/models/llama-70b", "--enable-lora", f"--port={port}"],
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "env": [
            *({"name": f"VLLM_OPTION_{i}", "value": str(i)} for i in range(env)),
            *(
                {"name": key, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
                for key, path in fields
            ),
        ],
        "resources": {
            "limits": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"},
            "requests": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"},
        },
        "volumeMounts": [
            {"name": "models", "mountPath": "/models"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {
                "name": "kube-api-access-x7k2p",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "startupProbe": probe | {"failureThreshold": 120},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _volumes() -> list[dict[str, Any]]:
    return [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
        {
            "name": "kube-api-access-x7k2p",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                ],
                "defaultMode": 420,
            },
        },
    ]


def pod(index: str = _INDEX) -> dict[str, Any]:
    """An engine pod with a sidecar, as an API server returns it, but for its managedFields."""
    when = "2026-01-01T00:00:00Z"
    images = {
        "vllm": "registry.example.com/vllm/vllm-openai:v0.11.0",
        "runtime": "registry.example.com/aibrix/runtime:v0.5.0",
    }
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": when}
        for kind in (
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        )
    ]
    return {
        "metadata": {
            "name": f"llama-70b-decode-{index}",
            "namespace": "serving",
            "uid": f"7f6e5d4c-3b2a-4190-8f7e-00000{index}",
            "resourceVersion": f"10{index}",
            "generation": 1,
            "creationTimestamp": when,
            "labels": {
                "app": "llama-70b",
                "model": "llama-70b",
                "podstamp.dev/managed": "true",
                "podstamp.dev/podset": "llama-70b-decode",
                "podstamp.dev/podset-index": index,
                "stormservice.orchestration.aibrix.ai/pod-group-index": index,
            },
            "annotations": {
                "podstamp.dev/incarnation": f"0197f2a0-5b3c-7d4e-8f60-00000{index}",
                "podstamp.dev/adapters": "sql,chat",
                "podstamp.dev/adapters-digest": "0123456789abcdef",
                "lora-modified": "2026-01-01T00:00:00.123456789Z",
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "8000",
            },
            "ownerReferences": [
                {
                    "apiVersion": "orchestration.aibrix.ai/v1alpha1",
                    "kind": "PodSet",
                    "name": "llama-70b-decode",
                    "uid": "6b1f3c9e-0f0e-4f5b-9d5b-1d1f0a2b3c4d",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [],
        },
        "spec": {
            "volumes": _volumes(),
            "containers": [
                _container("vllm", images["vllm"], 8000, 12),
                _container("runtime", images["runtime"], 8080, 3),
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "llama",
            "nodeName": f"gpu-node-{index}",
            "securityContext": {},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "gpu", "operator": "In", "values": ["h100", "h200"]}
                                ]
                            }
                        ]
                    }
                }
            },
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                *(
                    {
                        "key": f"node.kubernetes.io/{what}",
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": 300,
                    }
                    for what in ("not-ready", "unreachable")
                ),
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": "10.1.2.3",
            "hostIPs": [{"ip": "10.1.2.3"}],
            "podIP": "10.244.3.77",
            "podIPs": [{"ip": "10.244.3.77"}],
            "startTime": when,
            "qosClass": "Guaranteed",
            "containerStatuses": [
                {
                    "name": name,
                    "state": {"running": {"startedAt": when}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": image,
                    "imageID": f"{image}@sha256:{'0123456789abcdef' * 4}",
                    "containerID": f"containerd://{'0123456789abcdef' * 3}{name:0<9}{index}",
                    "started": True,
                }
                for name, image in images.items()
            ],
        },
    }


def pod_template(size: int = POD_BYTES) -> tuple[bytes, ...]:
    """The JSON of a pod of `size` bytes, cut where its 7-digit index belongs."""
    content = pod()
    fields: dict[str, Any] = {}
    content["metadata"]["managedFields"] = [
        {
            "manager": "kubelet",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": fields},
            "subresource": "status",
        }
    ]
    count = 0
    while len(_compact(content)) < size:
        fields[f'k:{{"type":"Condition{count}"}}'] = {".": {}, "f:status": {}, "f:type": {}}
        count += 1
    return tuple(_compact(content).split(_INDEX.encode()))


def _compact(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Canned:
    """Answers lists and watches of pods."""

    def __init__(self, pods: int) -> None:
        self._pods = pods
        self._parts = pod_template()

    def pod(self, index: int) -> bytes:
        return f"{index:07d}".encode().join(self._parts)

    def page(self, start: int, limit: int) -> Iterator[bytes]:
        """The pieces of one page, as kube-apiserver writes them: each object is one."""
        end = min(self._pods, start + limit)
        token = b',"continue":"%d"' % end if end < self._pods else b""
        head = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9000000"'
        yield head + token + b'},"items":['
        for index in range(start, end):
            yield (b"," if index > start else b"") + self.pod(index)
        yield b"]}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = urlsplit(head.split(b" ", 2)[1].decode())
                query = {key: values[0] for key, values in parse_qs(target.query).items()}
                if query.get("watch"):
                    await self._watch(writer, int(query.get("fieldSelector", "=0").split("=")[1]))
                    continue
                limit = int(query.get("limit", self._pods))
                pieces = self.page(int(query.get("continue", 0)), limit)
                writer.write(_HEAD + b"".join(_chunk(piece) for piece in pieces) + b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _watch(self, writer: asyncio.StreamWriter, events: int) -> None:
        """`events` MODIFIED at full speed, then one per second."""
        writer.write(_HEAD)
        sent = 0
        while True:
            index = sent % self._pods
            text = self.pod(index).replace(b'"10%07d"' % index, b'"2%09d"' % sent)
            line = b'{"type":"MODIFIED","object":' + text + b"}\n"
            writer.write(_chunk(line))
            await writer.drain()
            sent += 1
            if sent > events:
                await asyncio.sleep(1)


async def serve(pods: int, context: ssl.SSLContext, announce: Callable[[int], None]) -> None:
    """Serve on a free port, which is announced, until cancelled."""
    server = await asyncio.start_server(Canned(pods).handle, "127.0.0.1", 0, ssl=context)
    announce(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--ready", type=Path, required=True)
    options = parser.parse_args()
    ca = TestCa()
    pair = ca.issue("127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pair.pem").write_text(pair.cert + pair.key)
        context.load_cert_chain(Path(folder) / "pair.pem")
    ca_file = options.ready.with_suffix(".ca.pem")
    ca_file.write_text(ca.cert)

    def announce(port: int) -> None:
        """Tell the URL and the CA's file, as JSON."""
        address = {"url": f"https://127.0.0.1:{port}", "ca": str(ca_file)}
        options.ready.write_text(json.dumps(address))

    asyncio.run(serve(options.pods, context, announce))
    return 0


if __name__ == "__main__":
    sys.exit(main())
