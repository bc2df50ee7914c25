"""Which form of an answer a client accepts: plain JSON, a Table, or metadata only."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from tests.apiserver import errors

ACCEPTABLE = ("application/json", "application/*", "*/*")


class Accepted(NamedTuple):
    """`kind` "" is the object itself."""

    kind: Literal["", "Table", "PartialObjectMetadata"] = ""


@lru_cache(maxsize=128)
def negotiate(accept: str) -> Accepted:
    """The first form that this server can give; 406 when there is none."""
    if not accept.strip():
        return Accepted()
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media.lower() not in ACCEPTABLE:
            continue
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        form = given.get("as", "")
        if not form:
            return Accepted()
        if given.get("g") != "meta.k8s.io" or given.get("v") not in ("v1", "v1beta1"):
            continue
        if form == "Table":
            return Accepted("Table")
        if form in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Accepted("PartialObjectMetadata")
    raise errors.not_acceptable("application/json")
