"""Credentials that a program (`exec`) or a provider (`auth-provider`) hands out.

Invariant: the only place that imports `kubernetes`, and only when called (it takes some 20 MB).
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kube.errors import ConfigError
from kube.kubeconfig import Resolved


@dataclass(frozen=True, slots=True)
class Issued:
    """What a plugin answered: a token, or a certificate with its key."""

    token: str | None = field(default=None, repr=False)
    client_cert_pem: str | None = field(default=None, repr=False)
    client_key_pem: str | None = field(default=None, repr=False)


def run_plugin(resolved: Resolved, paths: Sequence[Path]) -> Issued:
    """Ask the plugin of the resolved user; blocking. ConfigError: it failed or gave nothing."""
    if resolved.user.exec is not None:
        return _run_exec(resolved, resolved.user.exec)
    return _ask_provider(resolved, paths)


def _run_exec(resolved: Resolved, spec: dict[str, Any]) -> Issued:
    errors, provider, loader = _official("config_exception", "exec_provider", "kube_config")
    command = spec.get("command", "")
    try:
        status = provider.ExecProvider(
            loader.ConfigNode("exec", spec),
            str(resolved.user_folder),
            loader.ConfigNode("cluster", msgspec.to_builtins(resolved.cluster)),
        ).run()
    except (errors.ConfigException, OSError) as error:
        hint = f"; {spec['installHint']}" if spec.get("installHint") else ""
        raise ConfigError(f"credentials plugin {command!r} failed: {error}{hint}") from error
    issued = Issued(
        token=status.get("token"),
        client_cert_pem=status.get("clientCertificateData"),
        client_key_pem=status.get("clientKeyData"),
    )
    if not issued.token and not (issued.client_cert_pem and issued.client_key_pem):
        raise ConfigError(f"credentials plugin {command!r} gave neither a token nor a certificate")
    return issued


def _ask_provider(resolved: Resolved, paths: Sequence[Path]) -> Issued:
    errors, loader = _official("config_exception", "kube_config")
    configuration = importlib.import_module("kubernetes.client").Configuration()
    try:
        loader.load_kube_config(
            config_file=":".join(str(path) for path in paths),
            context=resolved.context_name,
            client_configuration=configuration,
        )
    except (errors.ConfigException, OSError) as error:
        # What follows quotes the user's entry, with its secrets.
        reason = str(error).partition(" in ")[0]
        raise ConfigError(f"{paths[0]}: the auth-provider failed: {reason}") from error
    value = configuration.api_key.get("BearerToken", "").removeprefix("Bearer ")
    if not value:
        raise ConfigError(f"{paths[0]}: the auth-provider gave no token")
    return Issued(token=value)


def _official(*names: str) -> tuple[Any, ...]:
    return tuple(importlib.import_module(f"kubernetes.config.{name}") for name in names)
