"""A real kube-apiserver, kube-controller-manager and etcd for tests, built from their modules."""

from tests.controlplane.errors import ControlPlaneError
from tests.controlplane.plane import ControlPlane

__all__ = ["ControlPlane", "ControlPlaneError"]
