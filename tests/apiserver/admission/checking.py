"""Refuses webhook configurations and policies that could never be judged.

As kube-apiserver does, when they are written: an expression that does not compile or a
selector operator that does not exist is 422 then, and not a surprise at the first pod.
"""

from collections.abc import Iterator

from tests.apiserver.admission.attributes import Attributes, Json
from tests.apiserver.admission.expressions import ExpressionError, compile_expression
from tests.apiserver.admission.policies import CODES
from tests.apiserver.admission.selectors import unknown_operators
from tests.apiserver.errors import Cause, invalid

_SELECTORS = ("namespaceSelector", "objectSelector")


def refuse_broken(attributes: Attributes, obj: Json | None) -> None:
    """Raise 422 Invalid that names each broken field of a configuration being written."""
    if obj is None or attributes.group != "admissionregistration.k8s.io":
        return
    match attributes.kind:
        case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
            causes = [
                cause
                for index, entry in enumerate(obj.get("webhooks") or ())
                for cause in _webhook(f"webhooks[{index}]", entry)
            ]
        case "ValidatingAdmissionPolicy":
            causes = list(_policy(obj.get("spec") or {}))
        case "ValidatingAdmissionPolicyBinding":
            resources = (obj.get("spec") or {}).get("matchResources") or {}
            causes = list(_selectors("spec.matchResources", resources))
        case _:
            return
    if causes:
        name = (obj.get("metadata") or {}).get("name", "")
        raise invalid(attributes.group, attributes.kind, name, causes)


def _webhook(path: str, entry: Json) -> Iterator[Cause]:
    yield from _selectors(path, entry)
    yield from _conditions(path, entry.get("matchConditions"))


def _policy(spec: Json) -> Iterator[Cause]:
    yield from _selectors("spec.matchConstraints", spec.get("matchConstraints") or {})
    declared: frozenset[str] = frozenset()
    for index, variable in enumerate(spec.get("variables") or ()):
        path = f"spec.variables[{index}].expression"
        yield from _expression(path, variable.get("expression", ""), declared)
        declared |= {variable.get("name", "")}
    yield from _conditions("spec", spec.get("matchConditions"))
    for index, validation in enumerate(spec.get("validations") or ()):
        path = f"spec.validations[{index}]"
        yield from _expression(f"{path}.expression", validation.get("expression", ""), declared)
        reason = validation.get("reason")
        if reason is not None and reason not in CODES:
            supported = ", ".join(f'"{known}"' for known in CODES)
            text = f'Unsupported value: "{reason}": supported values: {supported}'
            yield Cause("FieldValueNotSupported", text, f"{path}.reason")
        if validation.get("messageExpression"):
            message = validation["messageExpression"]
            yield from _expression(f"{path}.messageExpression", message, declared)


def _conditions(path: str, conditions: list[Json] | None) -> Iterator[Cause]:
    for index, condition in enumerate(conditions or ()):
        field = f"{path}.matchConditions[{index}].expression"
        # Conditions come before a policy's variables, and cannot read them.
        yield from _expression(field, condition.get("expression", ""), frozenset())


def _expression(field: str, source: str, declared: frozenset[str]) -> Iterator[Cause]:
    try:
        compile_expression(source, declared)
    except ExpressionError as error:
        yield Cause("FieldValueInvalid", f'Invalid value: "{source}": {error}', field)


def _selectors(path: str, criteria: Json) -> Iterator[Cause]:
    for name in _SELECTORS:
        for operator in unknown_operators(criteria.get(name)):
            text = f'Invalid value: "{operator}": not a valid selector operator'
            yield Cause("FieldValueInvalid", text, f"{path}.{name}.matchExpressions")
