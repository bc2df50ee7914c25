"""YAML that people wrote, as plain values.

Invariant: whatever PyYAML stumbles over leaves as YAMLError. Its own constructors let a date that
does not exist, a number of 5,000 digits or an unknown word after `!!bool` out as other errors.
No value contains itself, so that who walks through it comes to an end.
"""

from typing import Any

import yaml


def load_yaml(text: str, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """The one document of `text`; YAMLError if it is none."""
    try:
        value = yaml.load(text, Loader=loader)
        _check_plain(value, (), set())
        return value
    except RecursionError as error:
        raise yaml.YAMLError(
            "it is nested too deeply, or an alias stands in what it names"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise yaml.YAMLError(f"a value cannot be read ({error})") from error


def _check_plain(value: Any, above: tuple[int, ...], checked: set[int]) -> None:
    """RecursionError for a value that contains itself by an alias, TypeError for a set."""
    if isinstance(value, set):
        raise TypeError("a set")
    if not isinstance(value, dict | list | tuple) or id(value) in checked:
        return
    if id(value) in above:
        raise RecursionError
    for item in value.values() if isinstance(value, dict) else value:
        _check_plain(item, (*above, id(value)), checked)
    checked.add(id(value))
