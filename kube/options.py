"""Settings of a command: a YAML file, then the environment, then flags.

Invariant: what is returned is valid in every field; a mistake is a ConfigError with its path.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def load_settings(
    kind: type[T], *, file: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> T:
    """Settings of struct type `kind`: defaults < `file` < `environ` < `flags`.

    YAML keys are camelCase. Field `terminal.hold_seconds` is `PODSTAMP_TERMINAL_HOLD_SECONDS` in
    the environment and `terminal.hold_seconds` in `flags`, where None means not given. Lists are
    comma-separated in the environment. ConfigError: path, value and what is allowed.
    """
    raise NotImplementedError
