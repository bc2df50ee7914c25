"""Services and their EndpointSlices, as far as podstamp reads them."""

import msgspec

from kube.meta import ObjectMeta


class ServicePort(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One port of a Service; `target_port` is a number or the name of a container port."""

    name: str = ""
    port: int = 0
    target_port: int | str = 0
    protocol: str = "TCP"


class ServiceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`spec`; a headless Service has the cluster IP `None`."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    external_name: str = ""
    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] = {}


class Service(msgspec.Struct, frozen=True, gc=False):
    """One Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.metadata.namespace, self.metadata.name)


class EndpointConditions(msgspec.Struct, frozen=True, gc=False):
    """`None` is what the API calls unknown: ready counts as true, terminating as false."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetReference(msgspec.Struct, frozen=True, gc=False):
    """What an endpoint stands for, as a rule a pod."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One endpoint of a slice; all its addresses mean the same endpoint."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    target_ref: TargetReference | None = None


class EndpointPort(msgspec.Struct, frozen=True, gc=False):
    """One port of a slice; `None` means every port."""

    name: str = ""
    port: int | None = None
    protocol: str = "TCP"


class EndpointSlice(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One slice; its Service is named by the label `kubernetes.io/service-name`."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()

    @property
    def service_name(self) -> str:
        """Name of the Service in the same namespace; empty for a slice of none."""
        return self.metadata.labels.get("kubernetes.io/service-name", "")
