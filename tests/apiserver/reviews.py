"""Kinds that are asked and answered at once: tokens, who am I, may I, and older bindings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.apiserver import errors
from tests.apiserver.authentication import Authentication
from tests.apiserver.call import Call, Target, User, stored
from tests.apiserver.kinds import Kinds, Object
from tests.apiserver.metadata import invalid_value, now_text
from tests.apiserver.scheduling import Scheduling
from tests.apiserver.storage import Storage

if TYPE_CHECKING:
    from tests.apiserver.routes import Place

MIN_TOKEN_S = 600
DEFAULT_TOKEN_S = 3600

Answer = Callable[[Call, "Place", Object], Awaitable[Object]]


class Reviews:
    def __init__(
        self,
        storage: Storage,
        kinds: Kinds,
        scheduling: Scheduling,
        authentication: Authentication,
    ) -> None:
        self._storage = storage
        self._kinds = kinds
        self._scheduling = scheduling
        self._authentication = authentication
        self._answers: dict[tuple[str, str], Answer] = {
            ("", "bindings"): self._bind,
            ("authentication.k8s.io", "selfsubjectreviews"): self._self,
            ("authentication.k8s.io", "tokenreviews"): self._token_review,
            ("authorization.k8s.io", "selfsubjectaccessreviews"): self._may,
            ("authorization.k8s.io", "subjectaccessreviews"): self._may,
        }

    def find(self, place: Place) -> Answer | None:
        if place.version != "v1" or place.name:
            return None
        return self._answers.get((place.group, place.plural))

    async def token(self, call: Call, target: Target, body: Object) -> Object:
        """POST serviceaccounts/NAME/token."""
        account = stored(self._storage, target).object
        spec = dict(body.get("spec") or {})
        lifetime_s = spec.setdefault("expirationSeconds", DEFAULT_TOKEN_S)
        if lifetime_s < MIN_TOKEN_S:
            why = "may not specify a duration less than 10 minutes"
            cause = invalid_value("spec.expirationSeconds", lifetime_s, why)
            raise errors.invalid("authentication.k8s.io", "TokenRequest", target.name, [cause])
        spec.setdefault("audiences", ["https://kubernetes.default.svc"])
        token = self._authentication.issue_for_account(
            target.namespace, target.name, account["metadata"]["uid"], lifetime_s
        )
        expires = datetime.now(UTC) + timedelta(seconds=lifetime_s)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": target.name,
                "namespace": target.namespace,
                "creationTimestamp": now_text(),
            },
            "spec": spec,
            "status": {
                "token": token,
                "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
        }

    async def _bind(self, call: Call, place: Place, body: Object) -> Object:
        pods = self._kinds.find("", "v1", "pods")
        name = (body.get("metadata") or {}).get("name")
        if pods is None or not place.namespace or not name:
            raise errors.bad_request("name of the pod must be provided")
        target = Target(pods, place.namespace, name, "binding")
        await self._scheduling.bind(call, target, body, legacy=True)
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }

    async def _self(self, call: Call, place: Place, body: Object) -> Object:
        return _reviewed(
            "authentication.k8s.io/v1", "SelfSubjectReview", {}, {"userInfo": _info(call.user)}
        )

    async def _token_review(self, call: Call, place: Place, body: Object) -> Object:
        spec = body.get("spec") or {}
        user = self._authentication.user_of(spec.get("token") or "")
        status: dict[str, Any] = {"authenticated": user is not None}
        if user is None:
            status["error"] = "token is not known"
        else:
            status["user"] = _info(user)
        return _reviewed("authentication.k8s.io/v1", "TokenReview", {"spec": spec}, status)

    async def _may(self, call: Call, place: Place, body: Object) -> Object:
        """Everybody may everything: there is no authorisation here."""
        kind = str(body.get("kind", "SelfSubjectAccessReview"))
        spec = {"spec": body.get("spec") or {}}
        return _reviewed("authorization.k8s.io/v1", kind, spec, {"allowed": True})


def _reviewed(api_version: str, kind: str, more: Object, status: Object) -> Object:
    metadata = {"creationTimestamp": now_text()}
    return {
        "kind": kind, "apiVersion": api_version, "metadata": metadata, **more, "status": status,
    }  # fmt: skip


def _info(user: User) -> Object:
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = user.extra
    return info
