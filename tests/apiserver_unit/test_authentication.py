"""Tokens end when they should."""

from __future__ import annotations

import pytest

from tests.apiserver.authentication import Authentication
from tests.apiserver.errors import StatusError
from tests.apiserver.storage import Storage

ACCOUNT = {"metadata": {"name": "bot", "namespace": "ns", "uid": "u-1"}}


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_of_an_account_ends_with_its_time() -> None:
    storage, clock = Storage(), _Clock()
    storage.put("serviceaccounts", "ns", "bot", ACCOUNT)
    authentication = Authentication(storage, clock)
    token = authentication.issue_for_account("ns", "bot", "u-1", 600)
    clock.now += 599
    user = authentication.user_of(token)
    assert user is not None
    assert user.name == "system:serviceaccount:ns:bot"
    clock.now += 1
    assert authentication.user_of(token) is None


def test_a_token_is_not_good_for_a_later_account_of_the_name() -> None:
    storage = Storage()
    storage.put("serviceaccounts", "ns", "bot", ACCOUNT)
    authentication = Authentication(storage)
    token = authentication.issue_for_account("ns", "bot", "u-1", 600)
    later = {"metadata": {**ACCOUNT["metadata"], "uid": "u-2"}}
    storage.put("serviceaccounts", "ns", "bot", later)
    assert authentication.user_of(token) is None


def test_a_user_token_has_no_end() -> None:
    clock = _Clock()
    authentication = Authentication(Storage(), clock)
    token = authentication.issue("alice", ["developers"])
    clock.now += 10 * 365 * 86400
    headers = {"authorization": f"Bearer {token}"}
    user = authentication.authenticate(headers, list(headers.items()))
    assert (user.name, user.groups) == ("alice", ("developers", "system:authenticated"))


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none"),
        pytest.param({"authorization": "Bearer x"}, id="unknown"),
        pytest.param({"authorization": "Basic eDp5"}, id="another scheme"),
        pytest.param({"impersonate-user": "alice"}, id="impersonation alone"),
    ],
)
def test_who_is_not_known_is_unauthorized(headers: dict[str, str]) -> None:
    with pytest.raises(StatusError) as caught:
        Authentication(Storage()).authenticate(headers, list(headers.items()))
    assert caught.value.code == 401
