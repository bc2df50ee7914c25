"""Label selectors of webhooks and policies, as Kubernetes evaluates them.

A selector without requirements matches everything, also an object without labels; one with
an operator that Kubernetes does not know matches nothing, and is refused when it is written.
"""

from typing import Any

_OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist"}


def unknown_operators(selector: dict[str, Any] | None) -> list[str]:
    """The operators of a LabelSelector that Kubernetes does not know."""
    requirements = (selector or {}).get("matchExpressions") or ()
    operators = [str(each.get("operator", "")) for each in requirements]
    return [operator for operator in operators if operator not in _OPERATORS]


def selects(selector: dict[str, Any] | None, labels: dict[str, str] | None) -> bool:
    """Whether `labels` meet every requirement of a metav1.LabelSelector."""
    if not selector:
        return True
    labels = labels or {}
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(requirement: dict[str, Any], labels: dict[str, str]) -> bool:
    key = requirement.get("key", "")
    values = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False
