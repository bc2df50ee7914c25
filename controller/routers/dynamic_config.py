"""Kind `dynamic-config`: the dynamic configuration of the production-stack router.

Invariant: pure; what is rendered has passed `rejection`, the router's own rules as far as they
are known: it keeps stale backends, and says so only in its log, when it rejects a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from controller.routers.config import DynamicConfigRouter
from controller.routers.desired import Backend, Desired
from controller.routers.document_kind import Entries, Rendered
from controller.routers.transport import Answer, RefusedError, RouterError, short

# The router cannot express an empty set: "", null and {} are rejected, and the old one stays.
# Nothing listens at the discard port, and no request asks for this model.
PLACEHOLDER_URL = "http://127.0.0.1:9"
PLACEHOLDER_MODEL = "none"

# Any other key makes it reject the file.
_KEYS = frozenset(
    {
        "service_discovery",
        "routing_logic",
        "static_backends",
        "static_models",
        "static_aliases",
        "static_model_labels",
        "static_model_types",
        "static_backend_health_checks",
        "static_backend_health_check_interval",
        "static_backend_health_check_timeout_seconds",
        "prefill_model_labels",
        "decode_model_labels",
        "k8s_port",
        "k8s_namespace",
        "k8s_label_selector",
        "session_key",
        "callbacks",
    }
)
_PER_BACKEND = ("static_models", "static_model_labels", "static_model_types")
# A domain name of at least two labels, localhost, or IPv4: no IPv6, no single-label host.
_HOST = re.compile(
    r"https?://(?:(?:[a-zA-Z0-9_-]+\.)+[a-zA-Z]{2,}|localhost|\d{1,3}(?:\.\d{1,3}){3})(?::\d+)?"
)


class _Report(msgspec.Struct):
    dynamic_config: dict[str, Any] | None = None


class DynamicConfig:
    """The document of one router."""

    absence_s = 0.0

    def __init__(self, config: DynamicConfigRouter) -> None:
        self._settings = {
            "service_discovery": "static",
            "routing_logic": config.routing_logic,
            **({"session_key": config.session_key} if config.session_key else {}),
            **(
                {"prefill_model_labels": config.prefill_model_labels}
                if config.prefill_model_labels
                else {}
            ),
            **(
                {"decode_model_labels": config.decode_model_labels}
                if config.decode_model_labels
                else {}
            ),
        }

    def render(self, desired: Desired, present: Entries, absent: Collection[str] = ()) -> Rendered:
        """A URL is repeated for each of its models and adapters. Health checks stay off: they
        are real completions, and make each reload 15 s slower."""
        left_out: dict[str, str] = {}
        rows: list[tuple[str, str, str]] = []
        for url, backend in sorted(desired.backends.items()):
            if url in absent:
                continue
            if why := inexpressible(backend):
                left_out[url] = why
                continue
            label = backend.engine.key.model_label
            rows += [(url, model, label) for model in (*backend.models, *backend.adapters)]
        for url in present.keys() & desired.undecided:
            label, *models = present[url]
            rows += [(url, model, label) for model in models]
        rows.sort(key=lambda row: row[0])
        entries = _entries(rows)
        if not rows:
            rows = [(PLACEHOLDER_URL, PLACEHOLDER_MODEL, "")]
        config: dict[str, Any] = dict(self._settings)
        config["static_backends"] = ",".join(url for url, _, _ in rows)
        config["static_models"] = ",".join(model for _, model, _ in rows)
        if any(label for _, _, label in rows):
            config["static_model_labels"] = ",".join(label for _, _, label in rows)
        if why := rejection(config):
            raise RouterError(f"the router would reject its configuration: {why}")
        encoded = msgspec.json.encode(config, order="sorted")
        return Rendered(msgspec.json.format(encoded, indent=1) + b"\n", entries, left_out)

    def parse(self, content: bytes) -> Entries | None:
        try:
            config = msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.DecodeError:
            return None
        return None if rejection(config) else _parsed(config)

    def engines(self, entries: Collection[str]) -> list[str]:
        return list(entries)

    def report_path(self) -> str:
        return "/health"

    def parse_report(self, answer: Answer) -> Entries:
        """`/health` carries the configuration in force, also when it answers 503."""
        try:
            config = msgspec.json.decode(answer.body, type=_Report).dynamic_config
        except msgspec.DecodeError as error:
            raise RefusedError(
                f"/health: HTTP {answer.status} {short(answer.body)}".rstrip()
            ) from error
        if config is None:
            raise RefusedError(
                "/health shows no dynamic_config; start it with --dynamic-config-json"
            )
        return _parsed(config)


def inexpressible(backend: Backend) -> str:
    """Why this engine has no place in the file; empty if it has."""
    if not _HOST.fullmatch(backend.engine.url):
        return "the router takes only IPv4 addresses and domain names of two labels or more"
    if not backend.models:
        return "the engine names no model"
    for name in (*backend.models, *backend.adapters):
        if "," in name:
            return f"a comma in the model name {name!r} would end it"
    return ""


def rejection(config: Mapping[str, Any]) -> str:
    """Why the router would not take this configuration; empty if it would."""
    if unknown := sorted(config.keys() - _KEYS):
        return f"unknown key {unknown[0]}"
    for key in ("service_discovery", "routing_logic"):
        if not isinstance(config.get(key), str) or not config[key]:
            return f"{key} is missing"
    if config["service_discovery"] != "static":
        return ""
    backends = config.get("static_backends")
    if not isinstance(backends, str) or not backends:
        return "static_backends is empty"
    urls = backends.split(",")
    for url in urls:
        if not _HOST.fullmatch(url):
            return f"{url} is no URL that it takes"
    for key in _PER_BACKEND:
        values = config.get(key)
        if values is None and key != "static_models":
            continue
        if not isinstance(values, str) or len(values.split(",")) != len(urls):
            return f"{key} has not as many entries as static_backends"
    return ""


def _parsed(config: Mapping[str, Any]) -> Entries:
    urls = _split(config.get("static_backends"))
    models = _split(config.get("static_models"))
    labels = _split(config.get("static_model_labels")) or [""] * len(urls)
    if not len(urls) == len(models) == len(labels):
        return {}
    rows = list(zip(urls, models, labels, strict=True))
    return _entries(row for row in rows if row[0] != PLACEHOLDER_URL)


def _entries(rows: Iterable[tuple[str, str, str]]) -> Entries:
    """By URL: its label, then its models and adapters."""
    models: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    for url, model, label in rows:
        models.setdefault(url, []).append(model)
        labels[url] = label
    return {url: (labels[url], *names) for url, names in models.items()}


def _split(value: Any) -> list[str]:
    return value.split(",") if isinstance(value, str) and value else []
