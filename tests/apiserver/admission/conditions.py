"""Match conditions of webhooks and policies.

One false condition skips, whatever the others did; only then does a failed one count, and the
failure policy decides: Fail refuses the request, Ignore skips.
"""

from collections.abc import Iterable

from tests.apiserver.admission.attributes import Json
from tests.apiserver.admission.expressions import ExpressionError, Scope, compile_expression


def conditions_hold(conditions: Iterable[Json], scope: Scope, failure_policy: str) -> bool:
    """Whether to go on; ExpressionError with all that failed, if the policy is Fail."""
    errors = []
    for condition in conditions:
        try:
            met = compile_expression(condition.get("expression", "")).evaluate(scope)
        except ExpressionError as error:
            errors.append(str(error))
            continue
        if met is False:
            return False
        if met is not True:
            errors.append(f"expression '{condition['expression']}' must evaluate to bool")
    if not errors:
        return True
    if failure_policy == "Ignore":
        return False
    raise ExpressionError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
