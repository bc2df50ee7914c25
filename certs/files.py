"""Writes CA and serving pair to a directory, for webhooks that run outside a cluster.

Invariant: each file is replaced as a whole, and the key is never readable for others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from certs.serving import CA_FILE, CERT_FILE, KEY_FILE
from kube.errors import ConfigError


def write_directory(directory: Path, data: Mapping[str, bytes]) -> bool:
    """Write `tls.crt`, `tls.key` and `ca.crt` of `data` there; returns whether any of them changed.

    A reader may meet new and old side by side for a moment; such a pair does not fit together, so
    no server takes it. ConfigError: the directory cannot be written.
    """
    changed = False
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in (CA_FILE, KEY_FILE, CERT_FILE):
            changed |= _replace(directory / name, data[name], 0o600 if name == KEY_FILE else 0o644)
    except OSError as error:
        raise ConfigError(f"{error.filename or directory}: {error.strerror or error}") from None
    return changed


def _replace(path: Path, content: bytes, mode: int) -> bool:
    if path.is_file() and path.read_bytes() == content:
        return False
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    scratch.replace(path)
    return True
