"""From a request to a verdict: finds the scope, asks the rules, collects the answer.

Invariant: pure; the same request, time, random bytes and view give the same verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.case import (
    EMPTY_VIEW,
    EXCLUSIONS,
    Case,
    Denial,
    Endpoint,
    Exclusion,
    Scope,
    Settings,
    StoreView,
    Suspicion,
    exclusion_of,
    fit_warning,
    scope_of,
)
from webhook.patch import Operation, build_operations
from webhook.review import DELETE, UPDATE, Malformed, Request
from webhook.rules import RULES, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_WARNINGS: Final = 8
"""With 250 characters each they stay far below the 4 KiB at which the server starts to cut."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The answer to one request. `rule` is the rule that refused, or the scope that allowed."""

    allowed: bool
    rule: str
    code: int = 200
    reason: str = ""
    message: str = ""
    operations: list[Operation] = []
    warnings: list[str] = []
    suspicion: Suspicion | None = None


NOT_A_POD: Final = Verdict(True, "not-a-pod")


class Judge:
    """The rules in force. `rules` and `exclusions` are parameters so that a test can take one
    out and see what it was good for."""

    def __init__(
        self,
        settings: Settings,
        rules: Iterable[Rule] = RULES,
        exclusions: Iterable[Exclusion] = EXCLUSIONS,
    ) -> None:
        self._settings = settings
        self._exclusions = tuple(exclusions)
        rules = tuple(rules)
        self._mutating, self._validating = (
            {
                scope: tuple(
                    rule for rule in rules if endpoint in rule.endpoints and scope in rule.scopes
                )
                for scope in Scope
            }
            for endpoint in (Endpoint.MUTATE, Endpoint.VALIDATE)
        )

    def mutate(self, request: Request, now_ns: int, random_bytes: bytes) -> Verdict:
        """The answer of the mutating endpoint. Ten random bytes, time in ns since 1970.

        Malformed: the object that the operation is about is missing.
        """
        if not request.is_pod or request.operation == DELETE:
            return NOT_A_POD if not request.is_pod else Verdict(True, Scope.OUT)
        return self._judge(
            request, Endpoint.MUTATE, self._mutating, now_ns, random_bytes, EMPTY_VIEW
        )

    def validate(self, request: Request, now_ns: int, view: StoreView = EMPTY_VIEW) -> Verdict:
        """The answer of the validating endpoint; with a suspicion that a fresh read decides."""
        if not request.is_pod:
            return NOT_A_POD
        return self._judge(request, Endpoint.VALIDATE, self._validating, now_ns, b"", view)

    def _judge(
        self,
        request: Request,
        endpoint: Endpoint,
        table: dict[Scope, tuple[Rule, ...]],
        now_ns: int,
        random_bytes: bytes,
        view: StoreView,
    ) -> Verdict:
        operation = request.operation
        old = request.old_object if operation != "CREATE" else None
        pod = old if operation == DELETE else request.object
        if pod is None:
            if operation == DELETE or operation not in ("CREATE", UPDATE):
                return Verdict(True, Scope.OUT)
            raise Malformed(request.uid, f"request.object is missing, though this is {operation}")
        case = Case(request, pod, old, endpoint, self._settings, now_ns, random_bytes, view)
        exclusion = exclusion_of(case, self._exclusions)
        scope = case.scope = scope_of(case, exclusion)
        for rule in table[scope]:
            denial = rule.apply(case)
            if denial is not None:
                return denied(rule.name, denial, case.warnings)
        name = exclusion.name if exclusion and scope is Scope.OUT else scope
        operations: list[Operation] = []
        if case.label_changes or case.annotation_changes:
            metadata = pod.metadata
            operations = build_operations(
                case.label_changes,
                case.annotation_changes,
                has_metadata=metadata is not None,
                has_labels=metadata is not None and metadata.labels is not None,
                has_annotations=metadata is not None and metadata.annotations is not None,
            )
        return Verdict(
            True,
            name,
            operations=operations,
            warnings=case.warnings[:MAX_WARNINGS],
            suspicion=case.suspicion,
        )


def denied(rule: str, denial: Denial, warnings: list[str]) -> Verdict:
    """A refusal by that rule."""
    return Verdict(
        False, rule, denial.code, denial.reason, denial.message, warnings=warnings[:MAX_WARNINGS]
    )


def with_warning(verdict: Verdict, warning: str) -> Verdict:
    """The same verdict, with one more warning and no suspicion."""
    warnings = [*verdict.warnings, fit_warning(warning)][:MAX_WARNINGS]
    return msgspec.structs.replace(verdict, warnings=warnings, suspicion=None)
