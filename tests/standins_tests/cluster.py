"""The API server as tests of stand-ins use it: as its administrator, over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from kube import paths
from kube.client import ApiClient
from kube.credentials import load_credentials
from kube.errors import NotFound
from tests.apiserver import EmbeddedCluster
from tests.standins.podsets import GROUP, PLURAL, VERSION

Json = dict[str, Any]

NAMESPACE = "models"
CRD = Path(__file__).parent.parent / "standins" / "podset_crd.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Admin:
    """Shorthands for what the tests do and ask."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    async def pod(self, name: str, **fields: Any) -> Json:
        """Create a pod with one container, or with the spec given."""
        spec = {"containers": [{"name": "c", "image": "i"}], **fields.pop("spec", {})}
        metadata = {"name": name, **fields.pop("metadata", {})}
        return await self.client.create(
            paths.pods(NAMESPACE), {"metadata": metadata, "spec": spec}, type=Json
        )

    async def get(self, name: str) -> Json:
        return await self.client.get(paths.pod(NAMESPACE, name), type=Json)

    async def delete(self, name: str) -> None:
        await self.client.delete(paths.pod(NAMESPACE, name))

    async def pods(self) -> dict[str, Json]:
        """All pods of the namespace by name."""
        listed = await self.client.get(paths.pods(NAMESPACE), type=Json)
        return {each["metadata"]["name"]: each for each in listed["items"]}

    async def phases(self) -> dict[str, str]:
        return {name: each["status"].get("phase", "") for name, each in (await self.pods()).items()}

    async def exists(self, name: str) -> bool:
        try:
            await self.get(name)
        except NotFound:
            return False
        return True

    async def podset(self, name: str, size: int, **spec: Any) -> Json:
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "PodSet",
            "metadata": {"name": name},
            "spec": {"podGroupSize": size, "template": template, **spec},
        }
        path = paths.custom(GROUP, VERSION, PLURAL, NAMESPACE)
        return await self.client.create(path, body, type=Json)

    async def set_status(self, name: str) -> Json:
        path = paths.custom(GROUP, VERSION, PLURAL, NAMESPACE, name)
        status: Json = (await self.client.get(path, type=Json)).get("status") or {}
        return status


@asynccontextmanager
async def administered(cluster: EmbeddedCluster) -> AsyncIterator[Admin]:
    """The administrator of a cluster that has the namespace and knows PodSets."""
    async with ApiClient(load_credentials(cluster.kubeconfig)) as client:
        await client.create(paths.namespaces(), {"metadata": {"name": NAMESPACE}})
        await client.create(CRDS, yaml.safe_load(CRD.read_text()))
        yield Admin(client)
