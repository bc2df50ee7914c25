"""The bearer token of a client, fresh.

Invariant: a file is read again at least each minute and whenever the server refuses the token;
a file that cannot be read, or is empty, leaves the last good token in use.
"""

import asyncio

from kube.clock import Clock
from kube.credentials import Credentials
from kube.errors import ConfigError
from kube.logs import get_logger

log = get_logger(__name__)

REREAD_AFTER_S = 60.0


class TokenSource:
    """One for a client."""

    def __init__(self, credentials: Credentials, clock: Clock) -> None:
        """ConfigError: the token file cannot be read."""
        self._file = credentials.token_file
        self._fetch = credentials.fetch_token
        self._clock = clock
        self._token = credentials.token
        self._read_at = clock.monotonic()
        self._fetching = asyncio.Lock()
        if self._file is not None:
            self._token = self._read_file()

    def current(self) -> str | None:
        """The token to send now; None for clients with a certificate only."""
        if self._file is not None and self._clock.monotonic() - self._read_at >= REREAD_AFTER_S:
            self._reread()
        return self._token

    async def refused(self, token: str | None) -> bool:
        """The server answered 401 to `token`: read again; whether there is another one now."""
        if self._token == token and self._file is not None:
            self._reread()
        elif self._fetch is not None:
            async with self._fetching:
                if self._token == token:
                    try:
                        self._token = await asyncio.to_thread(self._fetch) or self._token
                    except ConfigError as error:
                        log.warning("cannot renew the token", error=error)
        return self._token != token

    def _reread(self) -> None:
        self._read_at = self._clock.monotonic()
        try:
            self._token = self._read_file()
        except ConfigError as error:
            log.warning("the old token stays in use", error=error)

    def _read_file(self) -> str:
        assert self._file is not None
        try:
            token = self._file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not ASCII text"
            raise ConfigError(f"{self._file}: cannot read the token: {reason}") from error
        if not token:
            raise ConfigError(f"{self._file}: the token is empty")
        return token
