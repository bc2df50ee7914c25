"""ValidatingAdmissionPolicies and their bindings, judged as kube-apiserver judges them.

All policies are evaluated, then the first denial in the order of names is the answer. A policy
that cannot be judged (parameters, an expression that failed) falls to its failure policy.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.apiserver.admission.attributes import Json, display_name
from tests.apiserver.admission.conditions import conditions_hold
from tests.apiserver.admission.expressions import Expression, ExpressionError, compile_expression
from tests.apiserver.admission.matching import resources_match
from tests.apiserver.admission.subject import ObjectSource, Subject
from tests.apiserver.errors import StatusError, forbidden

GROUP = "admissionregistration.k8s.io"
POLICIES = "validatingadmissionpolicies"
BINDINGS = "validatingadmissionpolicybindings"

CODES = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
"""The reasons that a validation may give, and the HTTP codes that they mean."""

_NO_PARAMS = "params are not supported by this server"


@dataclass(frozen=True, slots=True)
class _Denial:
    message: str
    reason: str = "Invalid"


class Policies:
    """The stored policies, each with its bindings, read anew whenever the store changed."""

    def __init__(self, source: ObjectSource) -> None:
        self._source = source
        self._read_at = (-1, -1)
        self._bound: list[tuple[Json, list[Json]]] = []

    def _hooks(self) -> list[tuple[Json, list[Json]]]:
        revision = (self._source.revision(GROUP, POLICIES), self._source.revision(GROUP, BINDINGS))
        if revision != self._read_at:
            bindings = _sorted(self._source.objects(GROUP, BINDINGS))
            self._bound = [
                (policy, [each for each in bindings if _binds(each, policy)])
                for policy in _sorted(self._source.objects(GROUP, POLICIES))
            ]
            self._read_at = revision
        return self._bound

    def validate(self, subject: Subject) -> None:
        """StatusError of the first denial; warnings go to the attributes."""
        refused: tuple[str, _Denial] | None = None
        for policy, bindings in self._hooks():
            if not bindings:
                continue
            for by, denial in _denials(policy, bindings, subject):
                refused = refused or (by, denial)
        if refused is not None:
            raise _error(*refused, subject)


def _denials(policy: Json, bindings: list[Json], subject: Subject) -> Iterator[tuple[str, _Denial]]:
    """Each denial that some binding turns into a refusal, and what to call its author."""
    spec = policy.get("spec") or {}
    author = f"ValidatingAdmissionPolicy '{policy['metadata']['name']}'"
    if not resources_match(spec.get("matchConstraints") or {}, subject):
        return
    if spec.get("paramKind"):
        if spec.get("failurePolicy") != "Ignore":
            yield author, _Denial(f"failed to configure policy: {_NO_PARAMS}")
        return
    judged: list[_Denial] | None = None
    for binding in bindings:
        bound = binding.get("spec") or {}
        name = binding["metadata"]["name"]
        by = f"{author} with binding '{name}'"
        if not resources_match(bound.get("matchResources") or {}, subject):
            continue
        if judged is None:
            judged = list(_judge(spec, subject))
        for denial in judged:
            actions = bound.get("validationActions") or ()
            if "Deny" in actions:
                yield by, denial
            if "Warn" in actions:
                subject.attributes.warnings.append(f"Validation failed for {by}: {denial.message}")


def _judge(spec: Json, subject: Subject) -> Iterator[_Denial]:
    """What a policy's conditions and validations deny of a request that it matches."""
    policy = spec.get("failurePolicy") or "Fail"
    scope = subject.scope
    try:
        variables = _compile_variables(spec)
        declared = frozenset(variables)
        scope.enter(subject.namespace, variables)
        if not conditions_hold(spec.get("matchConditions") or (), scope, policy):
            return
    except ExpressionError as error:
        if policy == "Fail":
            yield _Denial(str(error))
        return
    for validation in spec.get("validations") or ():
        try:
            met = compile_expression(validation["expression"], declared).evaluate(scope)
        except ExpressionError as error:
            if policy == "Fail":
                yield _Denial(str(error))
            continue
        if met is not True:
            message = _message(validation, declared, subject)
            yield _Denial(message, validation.get("reason") or "Invalid")


def _compile_variables(spec: Json) -> dict[str, Expression]:
    """A policy's variables; each may read those before it."""
    compiled: dict[str, Expression] = {}
    for variable in spec.get("variables") or ():
        source = variable.get("expression", "")
        compiled[variable["name"]] = compile_expression(source, frozenset(compiled))
    return compiled


def _message(validation: Json, declared: frozenset[str], subject: Subject) -> str:
    """The computed message, or else the fixed one, or else the expression."""
    source = validation.get("messageExpression")
    if source:
        try:
            computed = compile_expression(source, declared).evaluate(subject.scope)
        except ExpressionError:
            computed = None  # as Kubernetes does: the fixed message takes its place
        if isinstance(computed, str) and computed.strip() and "\n" not in computed.strip():
            return computed.strip()
    fixed: str = (validation.get("message") or "").strip()
    return fixed or f"failed expression: {validation['expression'].strip()}"


def _error(by: str, denial: _Denial, subject: Subject) -> StatusError:
    attributes = subject.attributes
    name = display_name(attributes, subject.obj)
    message = f"{by} denied request: {denial.message}"
    error = forbidden(attributes.group, attributes.resource, name, message)
    details = {**(error.details or {}), "causes": [{"message": message}]}
    return StatusError(CODES[denial.reason], denial.reason, error.message, details)


def _binds(binding: Json, policy: Json) -> bool:
    return bool((binding.get("spec") or {}).get("policyName") == policy["metadata"]["name"])


def _sorted(objects: Iterable[Json]) -> list[Json]:
    return sorted(objects, key=lambda each: each["metadata"]["name"])
