"""Whatever PyYAML stumbles over is one kind of error."""

import pytest
import yaml

from kube.yamltext import load_yaml


def test_plain_values_are_as_they_stand() -> None:
    assert load_yaml("a: [1, {b: x}, 2026-11-29]\nc: &c {d: 1}\ne: *c")["e"] == {"d": 1}
    assert load_yaml("") is None


def test_what_stands_in_many_places_by_aliases_is_walked_once() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    assert len(load_yaml("\n".join(lines))["a29"]) == 9


@pytest.mark.parametrize(
    "text",
    [
        "2024-13-45",
        "9" * 5000,
        "!!int x",
        "!!float x",
        "!!bool x",
        "!!timestamp x",
        "0x_",
        "[" * 3000,
        "{a: " * 2000,
        "&a [*a]",
        "x: &a {b: {c: *a}}",
        "a: !!set {b, c}",
        "a: b: c",
        "!!python/object:os.system x",
    ],
)
def test_what_is_no_value_is_a_yaml_error(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)
