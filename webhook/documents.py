"""Pods in a file of YAML or JSON, one document or several, as `kubectl` would read them.

Invariant: a document that is no pod is a ConfigError that names the file and the document.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import yaml

from kube.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Document(NamedTuple):
    """One pod and where it stands."""

    place: str
    pod: dict[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML as kubectl takes it: times stay text, as JSON has none."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# YAML 1.1 of PyYAML wants a dot in floats; JSON's 1e3 must not become text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
)


def read_pods(file: str) -> list[Document]:
    """The pods of `file`, `-` for standard input; items of a List are documents of their own."""
    name = "stdin" if file == "-" else file
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = content.decode()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is not UTF-8 text; give a pod as YAML or JSON") from None
    pods = [pod for place, value in _parse(name, text) for pod in _pods_in(place, value)]
    if not pods:
        raise ConfigError(f"{name} holds no document; give a pod as YAML or JSON")
    return pods


def _parse(name: str, text: str) -> list[tuple[str, Any]]:
    try:
        values = list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{name}{where}: not YAML or JSON: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
        # The last three are PyYAML's own answer to a value that its tag does not fit.
        raise ConfigError(f"{name}: not YAML or JSON: {_line(error)}") from None
    several = len(values) > 1
    return [
        (f"{name}, document {at}" if several else name, value)
        for at, value in enumerate(values, 1)
        if value is not None
    ]


def _pods_in(place: str, value: Any) -> Iterable[Document]:
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: a {type(value).__name__}, not a pod")
    kind = value.get("kind")
    if kind in ("List", "PodList"):
        items = value.get("items") or []
        if not isinstance(items, list):
            raise ConfigError(f"{place}: items of this {kind} is no list")
        for at, item in enumerate(items, 1):
            if kind == "PodList" and isinstance(item, dict):
                item = {"apiVersion": "v1", "kind": "Pod"} | item
            yield from _pods_in(f"{place}, item {at}", item)
        return
    if kind != "Pod" or value.get("apiVersion") != "v1":
        found = f"kind {kind!r}, apiVersion {value.get('apiVersion')!r}"
        hint = (
            "; give the pod that it makes"
            if "template" in str(value.get("spec", ""))[:4000]
            else ""
        )
        raise ConfigError(f"{place}: not a pod ({found}); admission is for kind Pod, v1{hint}")
    try:
        # What JSON cannot say, such as a lone surrogate, no API server would take either.
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: cannot be sent as JSON: {_line(error)}") from None
    yield Document(place, value)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
