"""First sync of many pods, watch events and rest: our reflector beside the official client.

python -m tests.bench.reflector [--json FILE]. Every figure comes from a fresh process of its own;
the server is another one. At 50,000 pods the official client needs some 9 GB, so it is asked to
with `--official-sizes` only.
"""

import argparse
import asyncio
import contextlib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import Credentials
from kube.pod import Pod
from kube.reflector import Reflector
from kube.store import Store

EVENTS = 50_000
REST_S = 10.0


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.asynccontextmanager
async def reflector(url: str, ca: str, field_selector: str = "") -> Any:
    """A running reflector of pods on the canned server."""
    clock = SystemClock()
    store: Store[Pod] = Store(clock)
    credentials = Credentials(url, ca_file=Path(ca))
    async with ApiClient(credentials) as client:
        loop = Reflector(
            client,
            paths.pods(),
            Pod,
            store,
            field_selector=field_selector,
            clock=clock,
            random=random.Random(1),
        )
        task = asyncio.create_task(loop.run())
        try:
            yield store
        finally:
            task.cancel()


async def sync(url: str, ca: str) -> dict[str, Any]:
    """CPU and memory of a first sync."""
    began, began_cpu = time.monotonic(), cpu_s()
    async with reflector(url, ca) as store:
        await store.wait_synced()
        return figures(len(store), began, began_cpu)


async def events(url: str, ca: str) -> dict[str, Any]:
    """How many watch events a second the store keeps up with, when the server sends on and on."""
    changed = 0
    done = asyncio.Event()

    def count(_: object) -> None:
        nonlocal changed
        changed += 1
        if changed >= EVENTS:
            done.set()

    async with reflector(url, ca, f"events={EVENTS}") as store:
        await store.wait_synced()
        store.subscribe(count)
        began, began_cpu = time.monotonic(), cpu_s()
        await done.wait()
        spent_s = cpu_s() - began_cpu
        return {
            "events": changed,
            "wall_s": round(time.monotonic() - began, 3),
            "cpu_s": round(spent_s, 3),
            "events_per_cpu_second": round(changed / spent_s),
        }


async def rest(url: str, ca: str) -> dict[str, Any]:
    """CPU while one event a second arrives."""
    async with reflector(url, ca) as store:
        await store.wait_synced()
        await asyncio.sleep(1)
        began, began_cpu = time.monotonic(), cpu_s()
        await asyncio.sleep(REST_S)
        share = (cpu_s() - began_cpu) / (time.monotonic() - began)
        return {"window_s": REST_S, "percent_of_a_core": round(100 * share, 2)}


def official(url: str, ca: str) -> dict[str, Any]:
    """The same list by the official client, as its documentation shows it."""
    from kubernetes import client

    configuration = client.Configuration(host=url)
    configuration.ssl_ca_cert = ca
    api = client.CoreV1Api(client.ApiClient(configuration))
    began, began_cpu = time.monotonic(), cpu_s()
    pods = api.list_pod_for_all_namespaces()
    return figures(len(pods.items), began, began_cpu)


def figures(pods: int, began: float, began_cpu: float) -> dict[str, Any]:
    return {
        "pods": pods,
        "cpu_s": round(cpu_s() - began_cpu, 3),
        "wall_s": round(time.monotonic() - began, 3),
        "peak_rss_mb": round(peak_mb(), 1),
    }


ROLES = {"sync": sync, "events": events, "rest": rest}


@contextlib.contextmanager
def canned(pods: int) -> Iterator[tuple[str, str]]:
    """URL and CA file of a canned server with that many pods, in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "tests.bench._canned"]
        server = subprocess.Popen([*command, "--pods", str(pods), "--ready", str(ready)])
        try:
            while not ready.exists() or not ready.read_text():
                if server.poll() is not None:
                    raise RuntimeError("the canned server did not start")
                time.sleep(0.05)
            address = json.loads(ready.read_text())
            yield address["url"], address["ca"]
        finally:
            server.terminate()
            server.wait()


def measure(role: str, url: str, ca: str) -> dict[str, Any]:
    """The figures of `role`, run in a fresh process."""
    command = [sys.executable, "-m", "tests.bench.reflector", "--role", role, "--url", url]
    out = subprocess.run([*command, "--ca", ca], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(out.stdout)
    print(f"{role}: {out.stdout.strip()}", file=sys.stderr, flush=True)
    return result


def run_all(sizes: list[int], official_sizes: list[int]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for size in sizes:
        with canned(size) as (url, ca):
            results[f"sync_{size}"] = {"podstamp": measure("sync", url, ca)}
            if size in official_sizes:
                theirs = measure("official", url, ca)
                ours = results[f"sync_{size}"]["podstamp"]
                results[f"sync_{size}"] |= {
                    "official": theirs,
                    "official_to_podstamp_cpu": round(theirs["cpu_s"] / ours["cpu_s"], 1),
                }
    with canned(sizes[0]) as (url, ca):
        results["watch"] = measure("events", url, ca)
        results["rest"] = measure("rest", url, ca)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reflector", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5_000, 50_000])
    parser.add_argument("--official-sizes", type=int, nargs="*", default=[5_000])
    parser.add_argument("--role", choices=[*ROLES, "official"])
    parser.add_argument("--url")
    parser.add_argument("--ca")
    options = parser.parse_args()
    if options.role == "official":
        print(json.dumps(official(options.url, options.ca)))
    elif options.role:
        # On the loop that the controller runs on.
        print(json.dumps(uvloop.run(ROLES[options.role](options.url, options.ca))))
    else:
        results = run_all(options.sizes, options.official_sizes)
        text = json.dumps(results, indent=2) + "\n"
        if options.json:
            options.json.write_text(text)
        else:
            print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
