"""Object metadata: what a write may say there, and what the server fills in.

Rules are those of the real server's ObjectMeta validation; messages keep its wording where
clients or people read it.
"""

from __future__ import annotations

import re
import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.apiserver.errors import Cause

Object = dict[str, Any]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

MAX_ANNOTATION_BYTES = 256 * 1024
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_DNS_LABEL_NAMES = frozenset({"namespaces", "services"})
_PATH_NAMES = frozenset(
    f"{plural}.rbac.authorization.k8s.io"
    for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
)

_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '" + _SUBDOMAIN.replace("\\\\", "\\") + "')"
)
_LABEL_NAME_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',"
    "  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def now_text(later_s: int = 0) -> str:
    """The present second, or one `later_s` seconds on, as metav1.Time is written."""
    return (datetime.now(UTC) + timedelta(seconds=later_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def later(text: str, seconds: int) -> str:
    """The time `seconds` after that of `text`."""
    moved = datetime.fromisoformat(text) + timedelta(seconds=seconds)
    return moved.strftime("%Y-%m-%dT%H:%M:%SZ")


def new_uid() -> str:
    return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))


def generated_name(prefix: str) -> str:
    """`prefix` cut so that five random characters fit in 63, as the real server does."""
    return prefix[:58] + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))


def invalid_value(field: str, value: object, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def required(field: str, why: str = "") -> Cause:
    return Cause("FieldValueRequired", "Required value" + (f": {why}" if why else ""), field)


def forbidden_field(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def check_name(storage: str, name: str, field: str = "metadata.name") -> list[Cause]:
    if not name:
        return [required(field, "name or generateName is required")]
    if storage in _PATH_NAMES:
        bad = name in (".", "..") or "/" in name or "%" in name
        return [invalid_value(field, name, "may not contain '/' or '%'")] if bad else []
    if storage in _DNS_LABEL_NAMES:
        if len(name) > 63:
            return [invalid_value(field, name, "must be no more than 63 characters")]
        ok = _DNS_LABEL.fullmatch(name) is not None
        return [] if ok else [invalid_value(field, name, _LABEL_NAME_RULE)]
    if len(name) > 253:
        return [invalid_value(field, name, "must be no more than 253 characters")]
    ok = _DNS_SUBDOMAIN.fullmatch(name) is not None
    return [] if ok else [invalid_value(field, name, _NAME_RULE)]


def check_key(field: str, key: str) -> list[Cause]:
    """A label, annotation or finalizer key: an optional DNS subdomain, `/`, a short name."""
    prefix, slash, name = key.rpartition("/")
    if slash and (_DNS_SUBDOMAIN.fullmatch(prefix) is None or len(prefix) > 253):
        return [invalid_value(field, key, f"prefix part {_NAME_RULE}")]
    if len(name) > 63:
        return [invalid_value(field, key, "name part must be no more than 63 characters")]
    return [] if _QUALIFIED.fullmatch(name) else [invalid_value(field, key, _KEY_RULE)]


def check_labels(field: str, labels: dict[str, str]) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in labels.items():
        causes += check_key(field, key)
        if len(value) > 63:
            causes.append(invalid_value(field, value, "must be no more than 63 characters"))
        elif _LABEL_VALUE.fullmatch(value) is None:
            causes.append(invalid_value(field, value, _VALUE_RULE))
    return causes


def check_metadata(storage: str, metadata: Object) -> list[Cause]:
    """What any object's metadata has to obey, on create and on update."""
    causes = check_name(storage, metadata.get("name") or "")
    if labels := metadata.get("labels"):
        causes += check_labels("metadata.labels", labels)
    if annotations := metadata.get("annotations"):
        size = 0
        for key, value in annotations.items():
            causes += check_key("metadata.annotations", key.lower())
            size += len(key.encode()) + len(value.encode())
        if size > MAX_ANNOTATION_BYTES:
            causes.append(
                Cause(
                    "FieldValueTooLong",
                    f"Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes",
                    "metadata.annotations",
                )
            )
    for finalizer in metadata.get("finalizers") or ():
        causes += check_key("metadata.finalizers", finalizer)
    causes += _check_owners(metadata.get("ownerReferences") or ())
    return causes


def _check_owners(owners: Any) -> list[Cause]:
    causes: list[Cause] = []
    controllers = 0
    for index, owner in enumerate(owners):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                causes.append(required(f"metadata.ownerReferences[{index}].{name}"))
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        why = "Only one reference can have Controller set to true"
        causes.append(invalid_value("metadata.ownerReferences", owners, why))
    return causes


def check_metadata_update(metadata: Object, old: Object) -> list[Cause]:
    """Fields of metadata that no update may change; `metadata` is already prepared."""
    causes = [
        invalid_value(f"metadata.{field}", metadata.get(field), "field is immutable")
        for field in ("name", "namespace", "uid")
        if metadata.get(field) != old.get(field)
    ]
    if old.get("deletionTimestamp"):
        added = [f for f in metadata.get("finalizers", ()) if f not in old.get("finalizers", ())]
        if added:
            listed = ", ".join(f'"{name}"' for name in sorted(added))
            why = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            causes.append(forbidden_field("metadata.finalizers", why))
    return causes


def tidy(metadata: Object) -> None:
    """Drop what the real encoder omits, and field managers, which this server does not keep."""
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in metadata and not metadata[field]:
            del metadata[field]
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)


def fill_created(metadata: Object) -> None:
    """System fields of a new object, as after mutating admission."""
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        metadata.pop(field, None)
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now_text()


def keep_system_fields(metadata: Object, old: Object) -> None:
    """On update the server's own fields win over what the client sent."""
    if not metadata.get("uid"):
        metadata["uid"] = old["uid"]
    for field in ("creationTimestamp", "generation"):
        _copy_field(field, metadata, old)
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        _copy_field(field, metadata, old)


def _copy_field(field: str, target: Object, source: Object) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)
