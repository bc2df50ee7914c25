"""CEL as admission uses it: what it knows, what it refuses, and how failures read."""

from typing import Any

import pytest

from tests.apiserver.admission.expressions import Expression, ExpressionError, Scope

OBJECT = {
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c"}, {"name": "d"}], "n": 3},
}


@pytest.fixture
def scope() -> Scope:
    return Scope({"object": OBJECT, "oldObject": None, "request": {"operation": "CREATE"}})


VALUES: dict[str, Any] = {
    "has(object.metadata.labels)": True,
    "has(object.metadata.annotations)": False,
    "'a' in object.metadata.labels && object.metadata.labels['a'] == 'b'": True,
    "oldObject == null": True,
    "namespaceObject == null": True,
    "request.operation in ['CREATE', 'UPDATE']": True,
    "object.spec.containers.exists(c, c.name == 'd')": True,
    "object.spec.containers.all(c, c.name == 'd')": False,
    "object.spec.containers.exists_one(c, c.name == 'd')": True,
    "object.spec.containers.map(c, c.name).join(',')": "c,d",
    "object.spec.containers.filter(c, c.name == 'd').size()": 1,
    "object.metadata.labels.all(key, key in ['a'])": True,
    "object.nothing || true": True,
    "false && object.nothing": False,
    "'a/b'.split('/')[1].upperAscii() + 'X'.lowerAscii()": "Bx",
    "'abc'.matches('^[a-c]+$') && 'abc'.startsWith('a') && 'abc'.contains('b')": True,
    "'a-12'.find('[0-9]+') + string('a1b2'.findAll('[0-9]').size())": "122",
    "string(true) + string(1)": "true1",
    "int('12') + 1": 13,
    "timestamp('2026-01-01T00:10:00Z') - duration('10m') < timestamp('2026-01-01T00:00:01Z')": True,
    "timestamp('2026-01-01T09:00:00.000000001+09:00') > timestamp('2026-01-01T00:00:00Z')": True,
    "sets.contains(['a', 'b'], ['a']) && [1, 2].isSorted()": True,
    "dyn(1) == 1 && type('') == string": True,
    "has(object.spec) ? object.spec.n : 0": 3,
}


@pytest.mark.parametrize("source", VALUES, ids=range(len(VALUES)))
def test_an_expression_has_its_value(scope: Scope, source: str) -> None:
    assert Expression(source).evaluate(scope) == VALUES[source]


UNKNOWN = {
    "object.?metadata.name": "unsupported syntax",
    "object[?'a']": "unsupported syntax",
    "a b": "Syntax error",
    "foo == 1": "undeclared reference to 'foo'",
    "params.x": "undeclared reference to 'params'",
    "authorizer.group('')": "undeclared reference to 'authorizer'",
    "quantity('1') == 1": "undeclared reference to 'quantity'",
    "[1].first()": "undeclared reference to 'first'",
    "cel.bind(x, 1, x)": "undeclared reference to",
    "variables.other": "undeclared reference to 'variables.other'",
    "[1].exists(x, x == y)": "undeclared reference to 'y'",
}


@pytest.mark.parametrize(("source", "why"), UNKNOWN.items(), ids=range(len(UNKNOWN)))
def test_what_does_not_hold_in_kubernetes_does_not_compile(source: str, why: str) -> None:
    with pytest.raises(ExpressionError, match="compilation failed: ") as caught:
        Expression(source, frozenset({"own"}))
    assert why in str(caught.value)


FAILURES = {
    "object.nothing": "no such key: nothing",
    "object.metadata.labels['z']": "no such key: z",
    "has(oldObject.metadata)": "no such overload",
    "object.spec.n + 'a'": "no such overload",
    "object.spec.n / 0": "division by zero",
    "int('x')": "invalid digit",
}


@pytest.mark.parametrize(("source", "why"), FAILURES.items(), ids=range(len(FAILURES)))
def test_a_failure_reads_as_in_kubernetes(scope: Scope, source: str, why: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(source).evaluate(scope)
    assert str(caught.value).startswith(f"expression '{source}' resulted in error: ")
    assert why in str(caught.value)


def variables(**sources: str) -> dict[str, Expression]:
    compiled: dict[str, Expression] = {}
    for name, source in sources.items():
        compiled[name] = Expression(source, frozenset(compiled))
    return compiled


def test_variables_read_those_before_them_and_may_be_null(scope: Scope) -> None:
    known = variables(n="object.spec.n", twice="variables.n * 2", none="null")
    scope.enter({"metadata": {"name": "ns"}}, known)
    source = (
        "variables.twice == 6 && variables.none == null && namespaceObject.metadata.name == 'ns'"
    )
    assert Expression(source, frozenset(known)).evaluate(scope) is True


def test_a_variable_is_evaluated_only_when_it_is_read(scope: Scope) -> None:
    known = variables(broken="object.nothing")
    scope.enter(None, known)
    declared = frozenset(known)
    assert Expression("true || variables.broken", declared).evaluate(scope) is True
    with pytest.raises(ExpressionError) as caught:
        Expression("variables.broken == 1", declared).evaluate(scope)
    assert 'composited variable "broken" fails to evaluate: ' in str(caught.value)
    assert "no such key: nothing" in str(caught.value)


def test_variables_of_one_policy_are_unknown_to_the_next(scope: Scope) -> None:
    scope.enter(None, variables(x="1"))
    assert Expression("variables.x", frozenset({"x"})).evaluate(scope) == 1
    scope.enter(None, variables(x="2"))
    assert Expression("variables.x", frozenset({"x"})).evaluate(scope) == 2


def test_a_literal_that_looks_like_a_variable_stays(scope: Scope) -> None:
    scope.enter(None, variables(x="1"))
    for literal in ('"variables.x"', "'variables.x'", "r'variables.x'", "'''variables.x'''"):
        assert Expression(literal).evaluate(scope) == "variables.x"


def test_a_failure_does_not_colour_the_next(scope: Scope) -> None:
    known = variables(broken="object.nothing")
    scope.enter(None, known)
    assert Expression("variables.broken || true", frozenset(known)).evaluate(scope) is True
    with pytest.raises(ExpressionError, match="invalid digit"):
        Expression("int('x')").evaluate(scope)


def test_a_variable_is_evaluated_once_for_a_request(scope: Scope) -> None:
    class Counted(Expression):
        evaluations = 0

        def evaluate(self, scope: Scope) -> Any:
            Counted.evaluations += 1
            return super().evaluate(scope)

    scope.enter(None, {"x": Counted("1")})
    source = "variables.x + variables.x == 2"
    assert Expression(source, frozenset({"x"})).evaluate(scope) is True
    assert Counted.evaluations == 1
