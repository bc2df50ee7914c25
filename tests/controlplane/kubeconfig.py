"""Kubeconfig files for one cluster, with a token or a client certificate."""

import base64
from pathlib import Path
from typing import Any

import yaml

from tests.pki import Pair


def write(
    path: Path, *, url: str, ca_pem: str, user: str, token: str = "", pair: Pair | None = None
) -> Path:
    """Writes a kubeconfig that only its owner may read, whole or not at all; returns its path."""
    credentials: dict[str, Any] = {}
    if token:
        credentials["token"] = token
    if pair:
        credentials["client-certificate-data"] = _base64(pair.cert)
        credentials["client-key-data"] = _base64(pair.key)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "podstamp-test",
                "cluster": {"server": url, "certificate-authority-data": _base64(ca_pem)},
            }
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [
            {"name": "podstamp-test", "context": {"cluster": "podstamp-test", "user": user}}
        ],
        "current-context": "podstamp-test",
    }
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.touch(mode=0o600)
    unfinished.write_text(yaml.safe_dump(config, sort_keys=False))
    unfinished.replace(path)
    return path


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
