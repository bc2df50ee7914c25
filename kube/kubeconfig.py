"""Kubeconfig files: parsed, merged and resolved to one context.

Invariant: of entries with one name, and of current contexts, the first file's wins, as kubectl does
it; relative paths count from the file that names them. Every mistake is one ConfigError.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from kube.errors import ConfigError
from kube.yamltext import load_yaml


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """A `cluster` entry."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """A `user` entry."""

    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None

    @property
    def needs_plugin(self) -> bool:
        """Whether the credentials come from a program or a provider."""
        return self.exec is not None or self.auth_provider is not None


class Context(msgspec.Struct, frozen=True):
    """A `context` entry."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster = Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: Context = Context()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """One context with its cluster and user, and the folders their paths count from."""

    context_name: str
    context: Context
    cluster: Cluster
    cluster_folder: Path
    user: User
    user_folder: Path


E = TypeVar("E", _NamedCluster, _NamedUser, _NamedContext)


def resolve(paths: Sequence[Path], context: str | None = None) -> Resolved:
    """The named context, or the current one, of the merged files. All `paths` must exist."""
    files = [(path, _read(path)) for path in paths]
    shown = ":".join(str(path) for path in paths)
    name = context or next((f.current_context for _, f in files if f.current_context), "")
    if not name:
        raise ConfigError(f"{shown}: no current-context; set one with: kubectl config use-context")
    _, found = _find(files, "context", name, lambda f: f.contexts, shown)
    ctx = found.context
    if not ctx.cluster:
        raise ConfigError(f"{shown}: context {name!r} names no cluster")
    cluster_path, cluster = _find(files, "cluster", ctx.cluster, lambda f: f.clusters, shown)
    if not cluster.cluster.server:
        raise ConfigError(f"{shown}: cluster {ctx.cluster!r} has no server")
    user, user_path = User(), paths[0]
    if ctx.user:
        user_path, entry = _find(files, "user", ctx.user, lambda f: f.users, shown)
        user = entry.user or user
    return Resolved(
        name,
        ctx,
        cluster.cluster,
        cluster_path.parent.absolute(),
        user,
        user_path.parent.absolute(),
    )


def decode_pem(data: str, what: str) -> str:
    """The text of a base64 `…-data` value. ConfigError naming `what` if it is none."""
    try:
        return base64.b64decode("".join(data.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"kubeconfig: {what} is not base64 of PEM text") from error


def _find(
    files: list[tuple[Path, _File]],
    what: str,
    name: str,
    entries: Callable[[_File], list[E] | None],
    shown: str,
) -> tuple[Path, E]:
    known: list[str] = []
    for path, file in files:
        for entry in entries(file) or ():
            if entry.name == name:
                return path, entry
            known.append(entry.name)
    has = f"it has {', '.join(known)}" if known else "it has none"
    raise ConfigError(f"{shown}: {what} {name!r} is not there; {has}")


def _read(path: Path) -> _File:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the kubeconfig: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a kubeconfig: not UTF-8 text") from error
    try:
        content = load_yaml(text)
        return msgspec.convert({} if content is None else content, _File)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}: not YAML{where}: {getattr(error, 'problem', error)}") from error
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(f"{path}: not a kubeconfig: {error}") from error
