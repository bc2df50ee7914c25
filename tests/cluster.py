"""The one interface of both API servers, the embedded and the real one, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self


class Cluster(Protocol):
    """A running API server that its user closes, or leaves as a context manager.

    `url` is its https URL, `ca_pem` the certificate to trust, `token` a bearer token of the
    administrator, `kubeconfig` a file for the same.
    """

    url: str
    ca_pem: str
    token: str
    kubeconfig: Path

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with credentials of this user in these groups."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
