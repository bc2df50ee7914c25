"""Who asks: bearer tokens, service account tokens, and impersonation.

There is no authorisation: whoever is known may do everything, impersonation included.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.apiserver import errors
from tests.apiserver.call import User
from tests.apiserver.storage import Storage

AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class _Token:
    user: User
    expires: float | None = None
    account: tuple[str, str, str] | None = None  # namespace, name, uid of a service account


class Authentication:
    """The tokens of one server. May be called from any thread."""

    def __init__(self, storage: Storage, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._clock = clock
        self._tokens: dict[str, _Token] = {}

    def issue(self, name: str, groups: Sequence[str] = ()) -> str:
        """A token without an end for a user of this name."""
        token = secrets.token_urlsafe(32)
        self._tokens[token] = _Token(User(name, _with_authenticated(groups)))
        return token

    def issue_for_account(self, namespace: str, name: str, uid: str, lifetime_s: int) -> str:
        """A token that ends with its time or with the service account."""
        token = secrets.token_urlsafe(48)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        user = User(f"system:serviceaccount:{namespace}:{name}", _with_authenticated(groups), uid)
        expires = self._clock() + lifetime_s
        self._tokens[token] = _Token(user, expires, (namespace, name, uid))
        return token

    def user_of(self, token: str) -> User | None:
        known = self._tokens.get(token)
        if known is None or (known.expires is not None and known.expires <= self._clock()):
            return None
        if known.account is not None:
            namespace, name, uid = known.account
            record = self._storage.get("serviceaccounts", namespace, name)
            if record is None or record.object["metadata"]["uid"] != uid:
                return None
        return known.user

    def authenticate(
        self, headers: Mapping[str, str], all_headers: Sequence[tuple[str, str]]
    ) -> User:
        """The user of a request; 401 without a valid token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        user = self.user_of(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise errors.unauthorized()
        return _impersonated(all_headers) if "impersonate-user" in headers else user


def _impersonated(headers: Sequence[tuple[str, str]]) -> User:
    name, uid = "", ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for key, value in headers:
        if key == "impersonate-user":
            name = value
        elif key == "impersonate-group":
            groups.append(value)
        elif key == "impersonate-uid":
            uid = value
        elif key.startswith("impersonate-extra-"):
            extra.setdefault(key.removeprefix("impersonate-extra-"), []).append(value)
    account = name.removeprefix("system:serviceaccount:")
    if account != name and not groups:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account.partition(':')[0]}"]
    return User(name, _with_authenticated(groups), uid, extra)


def _with_authenticated(groups: Sequence[str]) -> tuple[str, ...]:
    return (*groups, *(() if AUTHENTICATED in groups else (AUTHENTICATED,)))
