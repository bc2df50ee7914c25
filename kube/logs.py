"""Logs: one line for each record, a constant message with key=value fields, or JSON.

Invariant: a record never spans lines; values are quoted where they would break the format.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from kube.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_FIELDS = "podstamp_fields"


class Logger:
    """Named logger whose keyword arguments become fields."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: Any) -> None:
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._log(logging.ERROR, message, fields)

    def exception(self, message: str, **fields: Any) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, message, fields, trace=True)

    def _log(self, level: int, message: str, fields: dict[str, Any], trace: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", message, extra={_FIELDS: fields}, exc_info=trace)


def get_logger(name: str) -> Logger:
    """The logger of that name, as a rule the module's."""
    return Logger(name)


def configure(*, level: str = "info", format: str = "text") -> None:
    """Write records of `level` and above to stderr. ConfigError for an unknown level or format."""
    if level not in LEVELS:
        raise ConfigError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    if format not in FORMATS:
        raise ConfigError(f"log format {format!r} is not one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old.formatter, _Formatter):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for chatty in ("httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class _Formatter(logging.Formatter):
    def pairs(self, record: logging.LogRecord) -> dict[str, Any]:
        time = datetime.fromtimestamp(record.created, UTC)
        pairs: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        fields = getattr(record, _FIELDS, {})
        pairs |= {key: value for key, value in fields.items() if value is not None}
        if record.exc_info and record.exc_info[0] is not None:
            pairs["trace"] = self.formatException(record.exc_info)
        return pairs


class _TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_text(key, v)}" for key, v in self.pairs(record).items())


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.pairs(record), default=str)


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if (
        key == "msg"
        or not text
        or any(c.isspace() or c in '"=' or not c.isprintable() for c in text)
    ):
        return json.dumps(text, ensure_ascii=not text.isprintable())
    return text
