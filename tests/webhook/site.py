"""The embedded API server with podstamp's webhook beside it, as a process of its own."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs.issue import issue_ca, issue_leaf
from tests.apiserver import EmbeddedCluster
from tests.cluster import Cluster
from tests.launch import Launched, launch_webhook
from tests.webhook.builders import Object
from webhook.stamps import ENABLED

MANIFESTS = Path(__file__).parents[2] / "manifests"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
BYPASS = "tests.example.org/bypass"
HOLD = "example.org/hold"
READY_S, POLL_S = 60.0, 0.05


def documents(path: Path) -> list[Object]:
    """The objects of a manifest."""
    return [doc for doc in yaml.safe_load_all(path.read_text("utf-8")) if doc]


def base(name: str) -> list[Object]:
    return documents(MANIFESTS / "base" / name)


def write_pair(folder: Path) -> bytes:
    """A serving pair for loopback in `folder`; returns the CA to trust (PEM)."""
    now, life = datetime.now(UTC), timedelta(days=2)
    ca = issue_ca(now, life)
    key = load_pem_private_key(ca.key_pem, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(ca.cert_pem)
    leaf = issue_leaf(certificate, key, ["127.0.0.1"], now, life)
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(leaf.cert_pem)
    (folder / "tls.key").write_bytes(leaf.key_pem)
    (folder / "ca.crt").write_bytes(ca.cert_pem)
    return ca.cert_pem


def by_url(configuration: Object, url: str, ca_pem: bytes, *, timeout_s: int = 30) -> Object:
    """The configuration with its entries reached at `url`; namespaces labelled `BYPASS` are kept
    from the mutating ones."""
    for entry in configuration["webhooks"]:
        path = entry["clientConfig"]["service"]["path"]
        entry["clientConfig"] = {"url": f"{url}{path}", "caBundle": _bundle(ca_pem)}
        entry["timeoutSeconds"] = timeout_s
        if path == "/mutate":
            entry["namespaceSelector"]["matchExpressions"].append(
                {"key": BYPASS, "operator": "DoesNotExist"}
            )
    return configuration


def _bundle(pem: bytes) -> str:
    return b64encode(pem).decode()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said."""

    code: int
    body: Object
    warnings: list[str]

    @property
    def ok(self) -> bool:
        return self.code < 300


@dataclass(slots=True)
class Site:
    """Typed access to the API as its administrator, or as anyone."""

    cluster: Cluster
    http: httpx.Client
    webhook: Launched | None = None
    _names: Iterator[int] = field(default_factory=lambda: iter(range(1, 10**6)))

    def call(
        self, method: str, path: str, body: Any = None, *, token: str = "", **params: str
    ) -> Answer:
        headers = {"authorization": f"Bearer {token or self.cluster.token}"}
        if method == "PATCH":
            headers["content-type"] = "application/merge-patch+json"
        response = self.http.request(method, path, json=body, headers=headers, params=params)
        content = response.json() if response.content else {}
        return Answer(response.status_code, content, _warnings(response))

    def must(self, method: str, path: str, body: Any = None, **more: str) -> Object:
        answer = self.call(method, path, body, **more)
        assert answer.ok, f"{method} {path}: {answer.code} {answer.body.get('message')}"
        return answer.body

    def namespace(self, labels: Object | None = None, name: str = "") -> str:
        """A namespace, a new one unless `name` exists, with these labels."""
        name = name or f"row-{next(self._names)}"
        body = {"metadata": {"name": name, "labels": labels or {}}}
        if not self.call("POST", "/api/v1/namespaces", body).ok:
            self.must("PATCH", f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels or {}}})
        return name

    def enable(self, namespace: str, **labels: str) -> None:
        body = {"metadata": {"labels": {ENABLED: "true"} | labels}}
        self.must("PATCH", f"/api/v1/namespaces/{namespace}", body)

    def create_pod(self, namespace: str, pod: Object) -> Object:
        """Store `pod`; on a real server once the namespace has its service account."""
        deadline = time.monotonic() + READY_S
        while True:
            answer = self.call("POST", pods(namespace), pod)
            missing = "service account" in str(answer.body.get("message", ""))
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        assert answer.ok, answer.body
        return answer.body

    def install(self, *objects: Object) -> None:
        for obj in objects:
            self.must("POST", f"{ADMISSION}/{_plural(obj['kind'])}", obj)

    def uninstall_webhooks(self) -> None:
        for kind in ("Mutating", "Validating"):
            self.must("DELETE", f"{ADMISSION}/{_plural(f'{kind}WebhookConfiguration')}/podstamp")


def pods(namespace: str, name: str = "", sub: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "") + sub


def _plural(kind: str) -> str:
    plural = kind.lower() + "s"
    return "validatingadmissionpolicies" if kind == "ValidatingAdmissionPolicy" else plural


def _warnings(response: httpx.Response) -> list[str]:
    found = []
    for value in response.headers.get_list("warning"):
        text = value.partition('"')[2].rpartition('"')[0]
        found.append(text.replace('\\"', '"').replace("\\\\", "\\"))
    return found


@contextmanager
def open_site(cluster: Cluster) -> Iterator[Site]:
    """The API server alone."""
    context = ssl.create_default_context(cadata=cluster.ca_pem)
    with httpx.Client(base_url=cluster.url, verify=context, timeout=60) as http:
        yield Site(cluster, http)


@contextmanager
def full_site(
    folder: Path, *, config: Object | None = None, policies: bool = False, timeout_s: int = 30
) -> Iterator[Site]:
    """API server and webhook, with the webhook configurations of the manifests."""
    ca_pem = write_pair(folder / "certs")
    file = folder / "webhook.yaml"
    file.write_text(yaml.safe_dump({"drainSeconds": 0, "stopSeconds": 2} | (config or {})))
    with EmbeddedCluster() as cluster, open_site(cluster) as site:
        site.webhook = launch_webhook(
            cluster.kubeconfig, folder, cert_dir=folder / "certs", config=file
        )
        try:
            install_webhooks(site, ca_pem, timeout_s=timeout_s)
            if policies:
                site.install(*base("policies.yaml"))
            yield site
        finally:
            site.webhook.stop()


def install_webhooks(
    site: Site, ca_pem: bytes, *, timeout_s: int = 30, extra: Sequence[Object] = ()
) -> None:
    assert site.webhook is not None
    url = f"https://127.0.0.1:{site.webhook.ports.port}"
    configurations = base("webhooks.yaml")
    for patch in extra:
        for configuration in configurations:
            if configuration["kind"] == patch["kind"]:
                configuration["webhooks"] += patch["webhooks"]
    site.install(*(by_url(c, url, ca_pem, timeout_s=timeout_s) for c in configurations))
