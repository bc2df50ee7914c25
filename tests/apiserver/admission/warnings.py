"""Warning headers as kube-apiserver writes them (RFC 7234, code 299).

At most 4096 characters in all: as soon as there are more, every text is cut to 256
characters, and what comes after the limit is dropped. Repeated texts are sent once.
"""

import unicodedata
from collections.abc import Iterable

_TOTAL = 4096
_EACH = 256


def headers(texts: Iterable[str]) -> list[str]:
    """The values of the Warning headers; texts with control characters are not sent."""
    unique = [text for text in dict.fromkeys(texts) if text and not _has_control(text)]
    if sum(map(len, unique)) <= _TOTAL:
        return [_header(text) for text in unique]
    values = []
    written = 0
    for text in unique:
        if written >= _TOTAL:
            break
        values.append(_header(text[:_EACH]))
        written += min(len(text), _EACH)
    return values


def _header(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'


def _has_control(text: str) -> bool:
    return any(unicodedata.category(character) == "Cc" for character in text)
