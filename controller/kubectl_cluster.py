"""What the kubectl commands read of a cluster: pods, the controller's configuration, its leader."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import msgspec

from controller.config import LEASE, ControllerConfig, load_config
from controller.guards import read_guards
from controller.node import NodeReader
from controller.plan import Look, PlanPolicy, needs_node
from controller.records import RecordsUnavailable
from controller.term import record_source, retired_policy
from controller.trust import Guards
from controller.verdict import NodeStanding, may_be_retired
from kube import paths
from kube.client import ApiClient
from kube.clock import SystemClock
from kube.credentials import Credentials, load_credentials
from kube.errors import ApiError, ConfigError, KubeError, NotFound, Unreachable
from kube.namespace import Namespace
from kube.pod import Pod
from webhook import stamps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from controller.records import PodKey, Record

CONFIG_MAP = "podstamp-config"
CONFIG_KEY = "controller.yaml"
HEALTH_PORT = 8080
TIMEOUT_S = 10.0


def credentials_of(args: argparse.Namespace) -> Credentials:
    """From --kubeconfig and --context, or the usual order."""
    return load_credentials(args.kubeconfig, args.context)


async def list_pods(client: ApiClient, namespace: str | None, selector: str = "") -> list[Pod]:
    """The managed pods, of one namespace or of all, narrowed by a label selector."""
    both = ",".join(part for part in (f"{stamps.MANAGED}=true", selector) if part)
    pages = client.list_pages(paths.pods(namespace), type=Pod, label_selector=both)
    return [pod async for page in pages for pod in page.items]


async def read_config(client: ApiClient, file: str | None, own_namespace: str) -> ControllerConfig:
    """The controller's configuration: a file, else the ConfigMap of the cluster, else defaults."""
    if file is not None:
        return load_config(Path(file), os.environ, {}, dsn_needed=False)
    try:
        found = await client.get(paths.configmap(own_namespace, CONFIG_MAP))
    except NotFound:
        return load_config(None, os.environ, {}, dsn_needed=False)
    text = (found.get("data") or {}).get(CONFIG_KEY, "")
    with TemporaryDirectory(prefix="podstamp-") as folder:
        draft = Path(folder) / CONFIG_KEY
        draft.write_text(text)
        try:
            return load_config(draft, os.environ, {}, dsn_needed=False)
        except ConfigError as error:
            raise ConfigError(
                f"ConfigMap {own_namespace}/{CONFIG_MAP}: {error};"
                " mend it, or name a file with --config"
            ) from error


async def look(
    client: ApiClient, config: ControllerConfig, pods: Sequence[Pod], policy: PlanPolicy
) -> tuple[Look, KubeError | None]:
    """Whatever a plan of these pods needs; an error tells why the records are missing in it."""
    namespaces = {
        item.metadata.name: item
        async for page in client.list_pages(paths.namespaces(), type=Namespace)
        for item in page.items
    }
    wanted = needs_node(pods, policy)
    reader = NodeReader(client, SystemClock())
    nodes: dict[str, NodeStanding] = {}
    for pod in pods:
        name = pod.spec.node_name
        if name in wanted and name not in nodes:
            nodes[name] = await reader.standing(pod)
    claims = any(pod.metadata.annotations.retired for pod in pods)
    guards = await read_guards(client) if policy.by_stamps and claims else Guards(())
    rows: Mapping[PodKey, Sequence[Record]] | None = {}
    problem = None
    if policy.by_stamps or policy.retired_enabled:
        try:
            rows = await _read_records(config, [pod for pod in pods if may_be_retired(pod)])
        except (RecordsUnavailable, ConfigError) as error:
            rows, problem = None, error
    return Look(pods, namespaces, nodes, rows, guards), problem


async def _read_records(
    config: ControllerConfig, pods: Sequence[Pod]
) -> Mapping[PodKey, Sequence[Record]]:
    source = record_source(config.retired)
    try:
        return await source.look_up(pods)
    finally:
        await source.aclose()


def plan_policy(config: ControllerConfig) -> PlanPolicy:
    """What of the configuration a plan reads."""
    return PlanPolicy(
        owner_kinds=config.terminal.kinds(),
        terminal_enabled=config.terminal.enabled,
        terminal_dry_run=config.terminal.dry_run,
        terminal_hold_s=config.terminal.hold_seconds,
        retired_enabled=config.retired.enabled,
        retired_dry_run=config.retired.dry_run,
        retired_hold_s=config.retired.hold_seconds,
        by_stamps=config.retired.source == "stamps",
        by_name=retired_policy(config.retired).by_name,
    )


async def ask_leader(
    client: ApiClient, url: str | None, own_namespace: str, route: str
) -> dict[str, Any]:
    """JSON of the leader's `route`; Unreachable says why there is no answer.

    Through --controller URL, or else through the API server's proxy to the pod of the Lease.
    """
    if url is not None:
        if not _is_url(url):
            raise ConfigError(f"--controller {url}: write a URL, as in http://127.0.0.1:8080")
        raw = await _get(f"{url.rstrip('/')}{route}")
    else:
        try:
            lease = await client.get(paths.lease(own_namespace, LEASE))
            holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
            pod = holder.partition("_")[0]
            if not pod:
                raise Unreachable("nobody holds the controller's Lease")
            path = f"{paths.pod(own_namespace, pod)}:{HEALTH_PORT}/proxy{route}"
            raw = await client.get_raw(path)
        except ApiError as error:
            raise Unreachable(f"the controller's leader does not answer: {error}") from error
    try:
        answer = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Unreachable("what answers is no podstamp controller") from error
    if not answer.get("leader"):
        raise Unreachable(f"{answer.get('identity', 'it')} is not the leader")
    return answer


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


async def _get(url: str) -> bytes:
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            response = await client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unreachable(f"{url}: {error or type(error).__name__}") from error
    if response.status_code != httpx.codes.OK:
        raise Unreachable(f"{url}: HTTP {response.status_code}")
    return response.content
