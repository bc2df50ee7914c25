"""The server's certificate: one CA and one leaf for localhost, made once a process."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tests.pki import TestCa

NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class Pair(NamedTuple):
    """PEM texts: the CA to trust, the leaf, and the leaf's key."""

    ca: str
    certificate: str
    key: str


@cache
def serving_pair() -> Pair:
    """A leaf for localhost, 127.0.0.1 and the in-cluster names, good for a day."""
    authority = TestCa("embedded-apiserver-ca")
    leaf = authority.issue(*NAMES, "127.0.0.1", "::1", common_name="embedded-apiserver")
    return Pair(authority.cert, leaf.cert, leaf.key)
