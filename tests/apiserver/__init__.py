"""The embedded API server: an in-memory Kubernetes API over HTTPS, for tests and the demo."""

from tests.apiserver.server import EmbeddedCluster

__all__ = ["EmbeddedCluster"]
