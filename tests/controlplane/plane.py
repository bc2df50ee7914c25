"""A real control plane: etcd, kube-apiserver and kube-controller-manager on free loopback ports.

Everything it writes is in one temporary folder; `close` ends the processes and removes it.
There is no node: pods that nobody plays a kubelet for stay Pending.
"""

import base64
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from tests.controlplane import kubeconfig
from tests.controlplane.build import binaries
from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.processes import Process, free_port
from tests.pki import Pair, TestCa

START_TIMEOUT_S = 90.0
ISSUER = "https://kubernetes.default.svc.cluster.local"
ADMIN = "podstamp-test-admin"

# `podgc`, which deletes pods of nodes that do not exist, and the node controllers are left out:
# tests bind pods to nodes that they only pretend to have.
CONTROLLERS = (
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "disruption-controller",
    "endpointslice-controller",
)

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:podstamp-system"]},
        {"level": "None"},
    ],
}


class ControlPlane:
    """The Cluster interface of the tests, by the real servers; a context manager.

    Starting takes some seconds; raises ControlPlaneError with the end of the log of what failed.
    """

    def __init__(self, *, port: int = 0) -> None:
        self._port = port or free_port()
        self._processes: dict[str, Process] = {}
        self._identities = 0
        self._commands = binaries()
        self._scratch = tempfile.TemporaryDirectory(prefix="podstamp-control-plane-")
        self.folder = Path(self._scratch.name)
        self.url = f"https://127.0.0.1:{self._port}"
        self._authority = TestCa("podstamp-test-control-plane")
        self.ca_pem = self._authority.cert
        self.token = secrets.token_urlsafe(24)
        self.kubeconfig = self.folder / "admin.kubeconfig"
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes, newest first, and removes the folder."""
        for process in reversed(self._processes.values()):
            process.kill()
        self._processes.clear()
        if self._http is not None:
            self._http.close()
            self._http = None
        self._scratch.cleanup()

    # -- identities -----------------------------------------------------------------------

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate of this user and these groups."""
        return self._write_kubeconfig(
            user, pair=self._authority.issue(common_name=user, organizations=groups)
        )

    def kubeconfig_for_service_account(
        self, namespace: str, name: str, *, expires_s: int = 3600
    ) -> Path:
        """A kubeconfig with a token that the API server issued for a service account."""
        return self._write_kubeconfig(
            f"{namespace}:{name}", token=self.service_account_token(namespace, name, expires_s)
        )

    def service_account_token(self, namespace: str, name: str, expires_s: int = 3600) -> str:
        """A token of a service account, by the TokenRequest API."""
        answer = self._admin().post(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            json={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": expires_s},
            },
        )
        if answer.status_code != 201:
            raise ControlPlaneError(f"token of {namespace}/{name}: {answer.text}")
        token: str = answer.json()["status"]["token"]
        return token

    # -- trouble --------------------------------------------------------------------------

    def kill_apiserver(self) -> None:
        """Ends the API server at once; every connection breaks."""
        self._processes.pop("kube-apiserver").kill()

    def start_apiserver(self) -> None:
        """Starts the API server on its port and returns when it is ready."""
        self._spawn(
            "kube-apiserver",
            etcd_servers=self._etcd_url,
            bind_address="127.0.0.1",
            secure_port=self._port,
            cert_dir=self.folder,
            tls_cert_file=self.folder / "serving.crt",
            tls_private_key_file=self.folder / "serving.key",
            client_ca_file=self.folder / "ca.crt",
            token_auth_file=self.folder / "tokens.csv",
            authorization_mode="Node,RBAC",
            enable_admission_plugins="NodeRestriction",
            allow_privileged="true",
            service_cluster_ip_range="10.0.0.0/24",
            service_account_issuer=ISSUER,
            service_account_key_file=self.folder / "service-account.crt",
            service_account_signing_key_file=self.folder / "service-account.key",
            audit_policy_file=self.folder / "audit-policy.yaml",
            audit_log_path=self.audit_log,
            profiling="false",
        ).wait_until(self._ready, START_TIMEOUT_S)

    def restart_apiserver(self) -> None:
        """Kills the API server and starts it again; what etcd holds is all that it knows."""
        self.kill_apiserver()
        self.start_apiserver()

    def compact_etcd(self) -> int:
        """Drops the history up to now, and returns the revision.

        A list's `continue` from before is Gone at once. A watch goes on, or starts again, from the
        API server's own cache, so only with `restart_apiserver` afterwards is an old one Gone too.
        """
        current = self._etcd("range", {"key": base64.b64encode(b"/").decode()})
        revision = int(current["header"]["revision"])
        self._etcd("compaction", {"revision": str(revision), "physical": True})
        return revision

    # -- what is seen from outside --------------------------------------------------------

    @property
    def audit_log(self) -> Path:
        """One JSON event a line, of the requests by service accounts of podstamp-system."""
        return self.folder / "audit.log"

    # -- start ----------------------------------------------------------------------------

    _http: httpx.Client | None = None

    def _admin(self) -> httpx.Client:
        if self._http is None:
            self._http = httpx.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {self.token}"},
                verify=ssl.create_default_context(cadata=self.ca_pem),
                timeout=10.0,
                trust_env=False,
            )
        return self._http

    def _start(self) -> None:
        names = ("localhost", "kubernetes.default.svc", "kubernetes.default")
        serving = self._authority.issue(*names, "127.0.0.1", "10.0.0.1")
        tokens = self._authority.issue(common_name="service-account tokens")
        for name, content in {
            "ca.crt": self.ca_pem,
            "serving.crt": serving.cert,
            "serving.key": serving.key,
            "service-account.crt": tokens.cert,
            "service-account.key": tokens.key,
            "tokens.csv": f'{self.token},{ADMIN},{ADMIN},"system:masters"\n',
            "audit-policy.yaml": yaml.safe_dump(AUDIT_POLICY),
        }.items():
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_text(content)
        kubeconfig.write(
            self.kubeconfig, url=self.url, ca_pem=self.ca_pem, user=ADMIN, token=self.token
        )
        self._start_etcd()
        self.start_apiserver()
        self._start_controller_manager()

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd_url = client
        self._spawn(
            "etcd",
            data_dir=self.folder / "etcd",
            listen_client_urls=client,
            advertise_client_urls=client,
            listen_peer_urls=peer,
            initial_advertise_peer_urls=peer,
            initial_cluster=f"default={peer}",
            # What it holds is thrown away: a lost write after a crash harms nobody.
            unsafe_no_fsync="true",
            log_level="warn",
        ).wait_until(lambda: _answers(f"{client}/readyz"), START_TIMEOUT_S)

    def _start_controller_manager(self) -> None:
        config = self.kubeconfig_for("system:kube-controller-manager", ["system:masters"])
        process = self._spawn(
            "kube-controller-manager",
            kubeconfig=config,
            controllers=",".join(CONTROLLERS),
            service_account_private_key_file=self.folder / "service-account.key",
            root_ca_file=self.folder / "ca.crt",
            leader_elect="false",
            secure_port=0,
            profiling="false",
        )
        # The service account of a new namespace is the sign that controllers are at work.
        process.wait_until(self._controllers_work, START_TIMEOUT_S)

    def _spawn(self, name: str, **flags: object) -> Process:
        arguments = [f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()]
        process = Process(
            name, [str(self._commands[name]), *arguments], self.folder / f"{name}.log"
        )
        self._processes[name] = process
        return process

    def _ready(self) -> bool:
        try:
            return self._admin().get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _controllers_work(self) -> bool:
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        return self._admin().get(path).status_code == 200

    def _write_kubeconfig(self, user: str, *, token: str = "", pair: Pair | None = None) -> Path:
        self._identities += 1
        return kubeconfig.write(
            self.folder / f"identity-{self._identities}.kubeconfig",
            url=self.url,
            ca_pem=self.ca_pem,
            user=user,
            token=token,
            pair=pair,
        )

    def _etcd(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = httpx.post(f"{self._etcd_url}/v3/kv/{call}", json=body, trust_env=False)
        if answer.status_code != 200:
            raise ControlPlaneError(f"etcd {call}: {answer.text.strip()}")
        decoded: dict[str, Any] = answer.json()
        return decoded


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
