"""Admission reviews a second over TLS, side by side: podstamp, plain Go net/http, Kopf.

python -m tests.bench.admission [--json FILE] [--rounds N] [--seconds S] [--connections N ...]

One review of a 10 KB vLLM pod, all rules on. The servers take turns in every round, and the
figures are the medians of the rounds. Also measured: memory at rest with 1,000 managed pods.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.apiserver import EmbeddedCluster
from tests.controlplane.build import CACHE
from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.processes import Process
from tests.controlplane.toolchain import environment, find_go
from tests.launch import ROOT, clean_environment, launch_webhook
from tests.webhook.builders import encode, owner, pod, review, stamped
from tests.webhook.site import open_site, pods, write_pair
from webhook.stamps import ADAPTERS, PODSET_INDEX

GO_SOURCE = Path(__file__).parent / "go_admission"
GO_BINARY = ROOT / ".cache" / "bench" / "admission"
PODS_AT_REST = 1000
START_S = 20.0

Figures = dict[str, Any]


class Server(NamedTuple):
    """A webhook to measure."""

    url: str
    pid: int


def vllm_review() -> bytes:
    """The CREATE of a pod as AIBrix makes it for vLLM with two LoRA adapters, about 10 KB."""
    body = pod(
        "llm-3",
        generateName="llm-",
        creationTimestamp=None,
        owners=[owner(name="llm")],
        labels={
            "app": "llm",
            "model.aibrix.ai/name": "llama-3-8b",
            "stormservice.orchestration.aibrix.ai/podset-name": "llm",
            "stormservice.orchestration.aibrix.ai/pod-group-index": "3",
            "stormservice.orchestration.aibrix.ai/role-name": "decode",
        },
        annotations={ADAPTERS: "chat", "prometheus.io/scrape": "true"},
        command=["vllm", "serve"],
        args=[
            "meta-llama/Llama-3.1-8B-Instruct", "--served-model-name", "llama-3-8b",
            "--tensor-parallel-size", "2", "--max-model-len", "8192", "--enable-lora",
            "--lora-modules", "sql=/adapters/sql",
            '{"name": "code", "path": "/adapters/code", "base_model_name": "llama-3-8b"}',
            "--gpu-memory-utilization", "0.92", "--port", "8000",
        ],
    )  # fmt: skip
    container = body["spec"]["containers"][0]
    container["env"] = [
        {"name": f"VLLM_SETTING_{at:02}", "value": f"value-of-setting-{at:02}"} for at in range(60)
    ]
    container["volumeMounts"] = [
        {"name": f"volume-{at}", "mountPath": f"/mnt/volume-{at}"} for at in range(12)
    ]
    container["resources"] = {"limits": {"nvidia.com/gpu": "2", "memory": "64Gi"}}
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        container[probe] = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 10}
    body["spec"]["volumes"] = [{"name": f"volume-{at}", "emptyDir": {}} for at in range(12)]
    body["metadata"]["managedFields"] = [
        {
            "manager": "controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {f'f:k{{"name":"VLLM_SETTING_{at:02}"}}': {".": {}} for at in range(90)},
        }
    ]
    return encode(review("CREATE", body))


def build_go() -> str | None:
    """Build handler and load generator; returns why that cannot be done, if so."""
    GO_BINARY.parent.mkdir(parents=True, exist_ok=True)
    try:
        go = find_go(CACHE, [GO_SOURCE / "go.mod"])
    except ControlPlaneError as error:
        return str(error)
    built = subprocess.run(
        [go.command, "build", "-o", str(GO_BINARY), "."],
        cwd=GO_SOURCE,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return None if built.returncode == 0 else f"go build failed: {built.stderr.strip()[:300]}"


@contextmanager
def podstamp_server(folder: Path, cluster: EmbeddedCluster) -> Iterator[Server]:
    launched = launch_webhook(cluster.kubeconfig, folder, cert_dir=folder / "certs")
    try:
        yield Server(f"https://127.0.0.1:{launched.ports.port}/mutate?timeout=5s", launched.pid)
    finally:
        launched.kill()


@contextmanager
def go_server(folder: Path) -> Iterator[Server]:
    certs = folder / "certs"
    log = folder / "go.log"
    command = [str(GO_BINARY), "serve", "-cert", str(certs / "tls.crt")]
    process = Process("go", [*command, "-key", str(certs / "tls.key")], log)
    try:
        process.wait_until(lambda: log.read_text().endswith("\n"), START_S)
        yield Server(f"https://127.0.0.1:{log.read_text().strip()}/mutate", process.pid)
    finally:
        process.kill()


@contextmanager
def kopf_server(folder: Path) -> Iterator[Server]:
    certs = folder / "certs"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    log = folder / "kopf.log"
    module = "tests.bench._kopf_admission"
    command = [sys.executable, "-m", module, str(port), str(certs / "tls.crt")]
    process = Process(
        "kopf", [*command, str(certs / "tls.key")], log, env=clean_environment(), cwd=ROOT
    )
    try:
        process.wait_until(lambda: log.read_text().endswith("\n"), START_S)
        yield Server(f"https://127.0.0.1:{port}{log.read_text().strip()}", process.pid)
    finally:
        process.kill()


def cpu_seconds(pid: int) -> float:
    """What the process has used so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server: Server, folder: Path, connections: int, seconds: float) -> Figures:
    """One run of the load generator, without warm-up, so that the CPU time is that of its
    reviews."""
    url, used = server.url, cpu_seconds(server.pid)
    done = subprocess.run(
        [
            str(GO_BINARY), "load", "-url", url, "-ca", str(folder / "certs" / "ca.crt"),
            "-body", str(folder / "review.json"), "-connections", str(connections),
            "-seconds", str(seconds), "-warmup", "0",
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{url}: {done.stderr.strip()}")
    figures: Figures = json.loads(done.stdout)
    figures["cpu_us"] = (cpu_seconds(server.pid) - used) / figures["reviews"] * 1e6
    return figures


def medians(runs: list[Figures]) -> Figures:
    return {
        key: round(statistics.median(run[key] for run in runs), 3)
        for key in ("per_second", "p50_ms", "p99_ms", "cpu_us")
    }


def resident_mib(pid: int) -> float:
    """Resident memory; Linux only, like the load that a cluster would put on it."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kib) / 1024


def fill(cluster: EmbeddedCluster, count: int) -> None:
    """`count` managed pods on the server, which the webhook's store then holds."""
    with open_site(cluster) as site:
        namespace = site.namespace()
        for at in range(count):
            site.must("POST", pods(namespace), stamped(f"llm-{at}", labels={PODSET_INDEX: str(at)}))


def run(rounds: int, seconds: float, all_connections: list[int]) -> Figures:
    figures: Figures = {}
    missing = build_go()
    if missing is not None:
        print(f"nothing is measured: {missing}; the load generator is written in Go")
        return {"skipped": missing}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_pair(folder / "certs")
        body = vllm_review()
        (folder / "review.json").write_bytes(body)
        figures["body_bytes"] = len(body)
        cluster = stack.enter_context(EmbeddedCluster())
        fill(cluster, PODS_AT_REST)
        ours = stack.enter_context(podstamp_server(folder, cluster))
        time.sleep(2)
        figures["memory_at_rest_mib"] = round(resident_mib(ours.pid), 1)
        servers = {
            "podstamp": ours,
            "go": stack.enter_context(go_server(folder)),
            "kopf": stack.enter_context(kopf_server(folder)),
        }
        for connections in all_connections:
            runs: dict[str, list[Figures]] = {name: [] for name in servers}
            for _ in range(rounds):
                for name, server in servers.items():
                    runs[name].append(measure(server, folder, connections, seconds))
            result: Figures = {name: medians(each) for name, each in runs.items()}
            for name in ("go", "kopf"):
                pairs = zip(runs["podstamp"], runs[name], strict=True)
                ratio = statistics.median(a["per_second"] / b["per_second"] for a, b in pairs)
                result[f"times_{name}"] = round(ratio, 2)
            figures[f"connections_{connections}"] = result
        figures["memory_after_load_mib"] = round(resident_mib(ours.pid), 1)
    return figures


def show(figures: Figures, tell: Callable[[str], None] = print) -> None:
    if "skipped" in figures:
        return
    tell(f"one review of {figures['body_bytes']} bytes, all rules on, TLS")
    for name, result in figures.items():
        if not name.startswith("connections_"):
            continue
        tell(f"{name.removeprefix('connections_'):>3} connections")
        for server in ("podstamp", "go", "kopf"):
            each = result[server]
            tell(
                f"    {server:<9}{each['per_second']:>9,.0f}/s   "
                f"p50 {each['p50_ms']:.2f} ms   p99 {each['p99_ms']:.2f} ms   "
                f"CPU {each['cpu_us']:.0f} µs"
            )
        tell(f"    podstamp is {result['times_go']} times Go, {result['times_kopf']} times Kopf")
    tell(
        f"memory with {PODS_AT_REST} managed pods: {figures['memory_at_rest_mib']} MiB at rest, "
        f"{figures['memory_after_load_mib']} MiB after the load"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.admission", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 64])
    arguments = parser.parse_args()
    figures = run(arguments.rounds, arguments.seconds, arguments.connections)
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
