"""The controller's configuration: one YAML file, the environment and flags over it.

Every range is here; a value outside it, an unknown key or a wrong type is a ConfigError that names
the path. Both reapers start in dry run, and the retired one is off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from controller.backoff import BackoffPolicy
from controller.budget import MAX_DELETES
from controller.routers.config import RouterConfig, check_routers
from controller.verdict import OwnerKind
from kube.errors import ConfigError
from kube.options import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Deletes = Annotated[int, Meta(ge=1, le=MAX_DELETES)]

LEASE = "podstamp-controller"
"""Name of the Lease, in podstamp's own namespace."""

DEFAULT_QUERY = (
    "SELECT namespace, pod_name, incarnation, state, active FROM executions"
    " WHERE namespace = ANY(%(namespaces)s) AND pod_name = ANY(%(names)s)"
)

WELL_KNOWN_KINDS = {
    "PodSet": "orchestration.aibrix.ai",
    "StormService": "orchestration.aibrix.ai",
    "RoleSet": "orchestration.aibrix.ai",
    "StatefulSet": "apps",
    "ReplicaSet": "apps",
    "DaemonSet": "apps",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    "Job": "batch",
}
"""Kinds that may be written without their group; they mean this group and no other."""


class BackoffConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """For slots whose replacements die at once."""

    initial_seconds: Annotated[float, Meta(ge=0, le=300)] = 1.0
    max_seconds: Annotated[float, Meta(ge=1, le=3600)] = 300.0
    quick_death_seconds: Annotated[float, Meta(ge=0, le=600)] = 10.0

    def policy(self) -> BackoffPolicy:
        return BackoffPolicy(self.initial_seconds, self.max_seconds, self.quick_death_seconds)


class TerminalConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The terminal reaper."""

    enabled: bool = True
    dry_run: bool = True
    hold_seconds: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    owner_kinds: tuple[str, ...] = ("PodSet.orchestration.aibrix.ai",)
    max_deletes_per_minute: Deletes = MAX_DELETES
    node_check_seconds: Annotated[float, Meta(ge=1, le=600)] = 10.0
    backoff: BackoffConfig = BackoffConfig()

    def kinds(self) -> frozenset[OwnerKind]:
        """The owner kinds; ConfigError for one that names no group."""
        return frozenset(
            _owner_kind(text, f"terminal.ownerKinds[{i}]")
            for i, text in enumerate(self.owner_kinds)
        )


class PostgresConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where records of retirement are read, if retired.source is postgres; dsn beats dsnFile."""

    dsn: str = ""
    dsn_file: str = ""
    query: str = DEFAULT_QUERY
    ssl_mode: Literal["", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = ""
    ssl_root_cert: str = ""
    batch_size: Annotated[int, Meta(ge=1, le=10_000)] = 500
    statement_timeout_seconds: Annotated[float, Meta(ge=0.1, le=30)] = 5.0
    connect_timeout_seconds: Annotated[int, Meta(ge=2, le=30)] = 5
    without_incarnation: Literal["skip", "by-name"] = "skip"


class RetiredConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The retired-pod reaper."""

    enabled: bool = False
    dry_run: bool = True
    hold_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    interval_seconds: Annotated[float, Meta(ge=1, le=3600)] = 15.0
    pass_seconds: Annotated[float, Meta(ge=1, le=45)] = 45.0
    max_deletes_per_minute: Deletes = MAX_DELETES
    source: Literal["stamps", "postgres"] = "stamps"
    postgres: PostgresConfig = PostgresConfig()


class StoreConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How old the store may be before the reapers stop and readiness fails."""

    max_age_seconds: Annotated[float, Meta(ge=5, le=3600)] = 180.0


class LeadershipConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The Lease; the renew deadline must be shorter than its duration."""

    lease_duration_seconds: Annotated[float, Meta(ge=2, le=300)] = 15.0
    renew_deadline_seconds: Annotated[float, Meta(ge=1, le=290)] = 10.0
    retry_period_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 2.0


class ControllerConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """controller.yaml; those from `kubeconfig` on take effect at start only."""

    terminal: TerminalConfig = TerminalConfig()
    retired: RetiredConfig = RetiredConfig()
    store: StoreConfig = StoreConfig()
    leadership: LeadershipConfig = LeadershipConfig()
    routers: tuple[RouterConfig, ...] = ()
    kubeconfig: str = ""
    context: str = ""
    namespace: str = "podstamp-system"
    health_port: Annotated[int, Meta(ge=0, le=65_535)] = 8080
    port_file: str = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"


def load_config(
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
    *,
    dsn_needed: bool = True,
) -> ControllerConfig:
    """File, then environment, then flags; ConfigError for anything that does not hold together.

    `dsn_needed`: false where only the controller itself, elsewhere, has the password.
    """
    config = load_settings(ControllerConfig, file=file, environ=environ, flags=flags)
    check_config(config, dsn_needed=dsn_needed)
    return config


def check_config(config: ControllerConfig, *, dsn_needed: bool = True) -> None:
    """The rules between fields; ConfigError names the path."""
    config.terminal.kinds()
    lease = config.leadership
    if not lease.retry_period_seconds < lease.renew_deadline_seconds < lease.lease_duration_seconds:
        raise ConfigError(
            "leadership: retryPeriodSeconds must be less than renewDeadlineSeconds,"
            " and that less than leaseDurationSeconds"
        )
    if config.retired.enabled and config.retired.source == "postgres":
        _check_postgres(config.retired.postgres, dsn_needed)
    check_routers(config.routers)


def _check_postgres(postgres: PostgresConfig, dsn_needed: bool) -> None:
    if dsn_needed and not (postgres.dsn or postgres.dsn_file):
        raise ConfigError(
            "retired.postgres: set dsnFile or dsn, as retired.source is postgres;"
            " or PODSTAMP_RETIRED_POSTGRES_DSN in the environment"
        )
    if "%(names)s" not in postgres.query:
        raise ConfigError(
            "retired.postgres.query: must restrict itself to the pods asked for,"
            " as in: WHERE pod_name = ANY(%(names)s)"
        )


def _owner_kind(text: str, path: str) -> OwnerKind:
    kind, _, group = text.partition(".")
    if not kind or not kind.isalnum() or not kind[0].isupper():
        raise ConfigError(f"{path}: {text!r} is no kind; write Kind.group, as in StatefulSet.apps")
    if not group:
        if kind not in WELL_KNOWN_KINDS:
            raise ConfigError(f"{path}: {text!r} needs its API group, as in {text}.example.com")
        group = WELL_KNOWN_KINDS[kind]
    return OwnerKind(kind, group)
