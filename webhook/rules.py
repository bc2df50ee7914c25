"""The rules of admission, all of them, in the order in which they are asked: `RULES`.

Invariant: a rule reads the case and adds to its answer or returns a refusal; it does no I/O, and
taking one out of the list takes out just its row of behaviour.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from webhook import fences, identity, lora, neighbours
from webhook.case import Case, Denial, Endpoint, Scope


class Apply(Protocol):
    def __call__(self, case: Case, /) -> Denial | None: ...


class Rule(NamedTuple):
    """One row of behaviour: where it is asked, and what it does."""

    name: str
    apply: Apply
    endpoints: tuple[Endpoint, ...]
    scopes: tuple[Scope, ...]


_M = (Endpoint.MUTATE,)
_V = (Endpoint.VALIDATE,)
_BOTH = (Endpoint.MUTATE, Endpoint.VALIDATE)
_BIRTH = (Scope.CREATE, Scope.ADOPT)
_LIFE = (Scope.UPDATE,)
_LIVING = (Scope.UPDATE, Scope.ADOPT, Scope.UNMANAGED)

RULES: Final = (
    # Refusals first, so that nothing is computed for a write that is not stored.
    Rule("fence-on-create", fences.refuse_fence_on_create, _BOTH, (Scope.CREATE,)),
    Rule("fence", fences.judge_fence, _M, (*_LIVING, Scope.TERMINATING)),
    Rule("fence-survived", fences.refuse_surviving_fence, _V, _LIVING),
    Rule("immutable-stamps", identity.hold_stamps, _BOTH, _LIFE),
    Rule("immutable-ownership", identity.hold_ownership, _BOTH, (Scope.ADOPT,)),
    Rule("retired", fences.judge_retirement, _M, (Scope.UPDATE, Scope.UNMANAGED)),
    Rule("retired-holds", fences.hold_retirement, _V, _LIFE),
    Rule("retired-at", fences.hold_retired_at, _BOTH, _LIFE),
    Rule("retired-at-birth", fences.refuse_retired_at_birth, _V, _BIRTH),
    Rule("index-mismatch", identity.refuse_other_index, _BOTH, _BIRTH),
    Rule("own-index", identity.refuse_changed_own_index, _BOTH, _LIFE),
    Rule("adapter-names", lora.refuse_adapter_names, _BOTH, (*_BIRTH, *_LIFE)),
    Rule("incarnation-skew", identity.refuse_skewed_incarnation, _V, _BIRTH),
    Rule("fenced-deleter", fences.refuse_unfenced_delete, _V, (Scope.DELETE,)),
    # Stamps.
    Rule("stamp", identity.stamp_identity, _M, _BIRTH),
    Rule("stamp-set", identity.stamp_set, _M, _BIRTH),
    Rule("copied-retirement", fences.drop_copied_retirement, _M, _BIRTH),
    Rule("copied-stamps", identity.tell_copied_stamps, _M, _BIRTH),
    Rule("adapters-digest", lora.stamp_adapters_digest, _M, (*_BIRTH, *_LIFE)),
    Rule("unreadable-adapters", lora.tell_unreadable_adapters, _M, _BIRTH),
    Rule("lora-at-create", lora.stamp_lora_at_birth, _M, (Scope.CREATE,)),
    Rule("lora-modified", lora.advance_lora_modified, _M, (Scope.ADOPT, *_LIFE)),
    # What others should know.
    Rule("role-set-warning", identity.tell_role_set, _M, (Scope.UNMANAGED,)),
    Rule("index-conflict", neighbours.suspect_index_holder, _V, (Scope.CREATE,)),
    Rule("name-held", neighbours.tell_name_holder, _V, (Scope.CREATE,)),
)
