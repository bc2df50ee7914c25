"""Who asks: tokens, service accounts, impersonation."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.cluster import Cluster
from tests.contract.api import Api, Object, ok, refused, turns
from tests.kubectl import Kubectl

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

Ask = Callable[[dict[str, str]], httpx.Response]


@pytest.fixture(scope="module")
def ask(cluster: Cluster) -> Iterator[Ask]:
    """Who am I, with these headers and no others."""
    context = ssl.create_default_context(cadata=cluster.ca_pem)
    with httpx.Client(base_url=cluster.url, verify=context) as client:
        yield lambda headers: client.post(REVIEWS, json=REVIEW, headers=headers)


def _user(answer: httpx.Response) -> Object:
    found: Object = ok(answer, 201)["status"]["userInfo"]
    return found


def test_the_administrator_is_authenticated(cluster: Cluster, ask: Ask) -> None:
    user = _user(ask({"Authorization": f"Bearer {cluster.token}"}))
    assert "system:authenticated" in user["groups"]
    assert "system:masters" in user["groups"]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Authorization": "Bearer nonsense"}, id="unknown token"),
        pytest.param({"Authorization": "Bearer"}, id="no token"),
    ],
)
def test_who_is_not_known_is_not_served(ask: Ask, headers: dict[str, str]) -> None:
    answer = ask(headers)
    if "nonsense" in headers["Authorization"]:
        assert refused(answer, 401, "Unauthorized")["message"] == "Unauthorized"
    else:
        assert answer.status_code in (401, 403)


def test_a_kubeconfig_of_a_user_says_who_asks(cluster: Cluster, tmp_path: Path) -> None:
    alice = Kubectl(cluster.kubeconfig_for("alice", ["developers"]), tmp_path)
    user = alice.json("auth", "whoami")["status"]["userInfo"]
    assert user["username"] == "alice"
    assert sorted(user["groups"]) == ["developers", "system:authenticated"]


def test_a_token_is_made_for_a_service_account(api: Api, namespace: str, ask: Ask) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    made = api.create(accounts, {"metadata": {"name": "bot"}})
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    status = api.create(f"{accounts}/bot/token", request)["status"]
    assert status["expirationTimestamp"] > made["metadata"]["creationTimestamp"]
    headers = {"Authorization": f"Bearer {status['token']}"}
    user = _user(ask(headers))
    assert user["username"] == f"system:serviceaccount:{namespace}:bot"
    assert user["uid"] == made["metadata"]["uid"]
    assert sorted(user["groups"]) == [
        "system:authenticated",
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
    ]


def test_a_token_ends_with_its_account(api: Api, namespace: str, ask: Ask) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "bot"}})
    token = api.create(f"{accounts}/bot/token", {"spec": {}})["status"]["token"]
    ok(api.delete(f"{accounts}/bot"))
    for _ in turns():
        if ask({"Authorization": f"Bearer {token}"}).status_code == 401:
            return
    pytest.fail("the token is still good")


def test_a_token_lives_ten_minutes_at_least(api: Api, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "bot"}})
    answer = api.post(f"{accounts}/bot/token", {"spec": {"expirationSeconds": 60}})
    assert (
        "may not specify a duration less than 10 minutes"
        in (refused(answer, 422, "Invalid")["message"])
    )


def test_the_administrator_may_be_another(cluster: Cluster, ask: Ask) -> None:
    user = _user(
        ask(
            {
                "Authorization": f"Bearer {cluster.token}",
                "Impersonate-User": "alice",
                "Impersonate-Group": "developers",
                "Impersonate-Extra-Team": "blue",
            }
        )
    )
    assert user["username"] == "alice"
    assert sorted(user["groups"]) == ["developers", "system:authenticated"]
    assert user["extra"] == {"team": ["blue"]}


def test_the_version_is_told(api: Api) -> None:
    found = api.read("/version")
    assert int(found["major"]) == 1
    assert found["gitVersion"].startswith("v1.")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_health_is_told(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.status_code, answer.text) == (200, "ok")


def test_a_token_is_reviewed(api: Api, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "bot"}})
    token = api.create(f"{accounts}/bot/token", {"spec": {}})["status"]["token"]
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    known = api.create(reviews, {"spec": {"token": token}})["status"]
    assert known["authenticated"] is True
    assert known["user"]["username"] == f"system:serviceaccount:{namespace}:bot"
    unknown = api.create(reviews, {"spec": {"token": "nonsense"}})["status"]
    assert not unknown.get("authenticated")


def test_the_administrator_may_everything(api: Api) -> None:
    body = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert api.create(path, body)["status"]["allowed"] is True
