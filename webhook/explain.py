"""What admission would do to a pod of a file, without a cluster, as in an enabled namespace.

Invariant: goes through the same decoding, rules and patch as a review on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jsonpatch
import msgspec
import yaml

from kube.errors import ConfigError
from webhook.judge import Judge, Verdict
from webhook.review import API_VERSION, CREATE, DELETE, KIND, UPDATE, Malformed, decode_review

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.documents import Document

_UID: Final = "00000000-0000-0000-0000-000000000000"
DEFAULT_USER: Final = "kubernetes-admin"


class Asked(NamedTuple):
    """One question: the operation, the object after it and the object before."""

    operation: str
    new: dict[str, Any] | None
    old: dict[str, Any] | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one document. `patch` holds the operations, `object` the pod as stored."""

    pod: str
    operation: str
    allowed: bool
    code: int
    reason: str
    message: str
    rule: str
    warnings: list[str]
    patch: list[dict[str, Any]]
    object: dict[str, Any] | None


def pair_documents(
    documents: Sequence[Document], olds: Sequence[Document] | None, operation: str | None
) -> list[Asked]:
    """What to ask for each document. ConfigError: an UPDATE without its old pod."""
    operation = operation or (UPDATE if olds is not None else CREATE)
    if operation == CREATE:
        if olds is not None:
            raise ConfigError("--old is for --operation UPDATE; a CREATE has no old pod")
        return [Asked(CREATE, document.pod, None) for document in documents]
    if operation == DELETE:
        return [Asked(DELETE, None, document.pod) for document in olds or documents]
    if olds is None:
        raise ConfigError("--operation UPDATE needs the stored pod: add --old FILE")
    if len(documents) == len(olds) == 1:
        return [Asked(UPDATE, documents[0].pod, olds[0].pod)]
    by_name = {_identity(old.pod): old.pod for old in olds}
    asked = []
    for document in documents:
        identity = _identity(document.pod)
        if identity not in by_name:
            raise ConfigError(f"{document.place}: no pod {'/'.join(identity)} in the --old file")
        asked.append(Asked(UPDATE, document.pod, by_name[identity]))
    return asked


def explain(
    asked: Asked,
    judge: Judge,
    *,
    user: str,
    groups: Sequence[str],
    now_ns: int,
    random_bytes: Callable[[int], bytes],
) -> Explanation:
    """Mutation, then validation of what comes out, as the API server does it."""
    warnings: list[str] = []
    patch: list[dict[str, Any]] = []
    new = asked.new
    try:
        body = _review(asked, new, user, groups)
        verdict = judge.mutate(decode_review(body), now_ns, random_bytes(10))
        warnings += verdict.warnings
        if verdict.allowed:
            rule = verdict.rule
            patch = msgspec.to_builtins(verdict.operations)
            if patch:
                new = jsonpatch.apply_patch(new, patch)
            verdict = judge.validate(decode_review(_review(asked, new, user, groups)), now_ns)
            warnings += [text for text in verdict.warnings if text not in warnings]
            if verdict.allowed and asked.operation != DELETE:
                verdict = msgspec.structs.replace(verdict, rule=rule)
    except Malformed as error:
        verdict = Verdict(False, "malformed", 400, "BadRequest", str(error))
    allowed = verdict.allowed
    return Explanation(
        pod="/".join(_identity(asked.new or asked.old or {})),
        operation=asked.operation,
        allowed=allowed,
        code=verdict.code,
        reason=verdict.reason,
        message=verdict.message,
        rule=verdict.rule,
        warnings=warnings,
        patch=patch if allowed else [],
        object=new if allowed else None,
    )


def _review(asked: Asked, new: dict[str, Any] | None, user: str, groups: Sequence[str]) -> bytes:
    namespace, name = _identity(asked.new or asked.old or {})
    return msgspec.json.encode(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "request": {
                "uid": _UID,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "operation": asked.operation,
                "namespace": namespace,
                "name": name,
                "userInfo": {"username": user, "groups": list(groups)},
                "object": _as_stored(new),
                "oldObject": _as_stored(asked.old),
                "options": {},
            },
        }
    )


def _as_stored(pod: dict[str, Any] | None) -> dict[str, Any] | None:
    """A label or annotation without a value is an empty string to the API server."""
    metadata = pod.get("metadata") if pod else None
    if pod is None or not isinstance(metadata, dict):
        return pod
    filled = dict(metadata)
    for name in ("labels", "annotations"):
        values = filled.get(name)
        if isinstance(values, dict):
            filled[name] = {key: "" if value is None else value for key, value in values.items()}
    return pod | {"metadata": filled}


def _identity(pod: dict[str, Any]) -> tuple[str, str]:
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict):
        return "default", ""
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return (
        namespace if isinstance(namespace, str) and namespace else "default",
        name if isinstance(name, str) else "",
    )


def render(explanations: Sequence[Explanation], output: str) -> str:
    """As `json`, `yaml`, or `table`: a line for each pod, then what changes and the pod itself."""
    if output == "json":
        content = msgspec.json.format(msgspec.json.encode(explanations), indent=2).decode()
        return f"{content}\n"
    if output == "yaml":
        text: str = yaml.safe_dump(msgspec.to_builtins(explanations), sort_keys=False)
        return text
    return _table(explanations)


def _table(explanations: Sequence[Explanation]) -> str:
    rows = [("POD", "OPERATION", "VERDICT", "CODE", "RULE")]
    for e in explanations:
        verdict = "denied" if not e.allowed else "patched" if e.patch else "allowed"
        code = str(e.code) if e.code != 200 else "-"
        rows.append((e.pod, e.operation, verdict, code, e.rule))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for e in explanations:
        lines += ["", f"# {e.operation} {e.pod}"]
        if e.message:
            lines.append(f"# {e.reason}: {e.message}")
        lines += [f"# warning: {warning}" for warning in e.warnings]
        for operation in e.patch:
            value = operation.get("value")
            shown = "" if value is None else f" {msgspec.json.encode(value).decode()}"
            lines.append(f"# {operation['op']} {operation['path']}{shown}")
        if e.object is not None:
            lines.append(yaml.safe_dump(e.object, sort_keys=False).rstrip())
            lines.append("---")
    return "\n".join(lines).removesuffix("\n---") + "\n"
