"""HTTPS calls of webhooks, with kept connections, checked against the hook's own caBundle.

A name is verified as `<service>.<namespace>.svc`, or as the URL's host; the words of a failure
are those that a Go server prints, since people search for them.
"""

import asyncio
import base64
import binascii
import ssl
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from tests.apiserver.admission.attributes import Json
from tests.apiserver.admission.review import CallError
from tests.apiserver.admission.subject import ObjectSource

Timeout = Callable[[float], AbstractAsyncContextManager[Any]]

_IDLE_S = 90.0
_SHOWN_BYTES = 2048


class Caller:
    """`services` maps (namespace, name) to a base URL, before stored Services are asked."""

    def __init__(self, source: ObjectSource, timeout: Timeout = asyncio.timeout) -> None:
        self.services: dict[tuple[str, str], str] = {}
        self._source = source
        self._timeout = timeout
        self._clients: dict[tuple[str, str], httpx.AsyncClient] = {}
        self._turn = count()

    async def post(self, client_config: Json, body: Json, timeout_s: int) -> Any:
        """The decoded JSON of the webhook's answer; CallError if there is none."""
        service = client_config.get("service")
        if service:
            port = service.get("port") or 443
            host = f"{service['name']}.{service['namespace']}.svc"
            shown = f"https://{host}:{port}{service.get('path') or '/'}?timeout={timeout_s}s"
        else:
            shown = f"{client_config.get('url', '')}?timeout={timeout_s}s"
            host = urlsplit(shown).hostname or ""
        client = self._client(client_config.get("caBundle") or "", host)
        try:
            url = shown
            if service:
                base = self._resolve(service["namespace"], service["name"], port)
                url = f"{base}{service.get('path') or '/'}?timeout={timeout_s}s"
            async with self._timeout(timeout_s):
                response = await client.post(
                    url,
                    content=msgspec.json.encode(body),
                    headers={
                        "Content-Type": "application/json",
                        "Accept": "application/json",
                        "Host": urlsplit(shown).netloc,
                        "User-Agent": "kube-apiserver-admission",
                    },
                    extensions={"sni_hostname": host},
                )
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, LookupError) as error:
            raise CallError(f'failed to call webhook: Post "{shown}": {_why(error)}') from error
        return _decode(response)

    async def aclose(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _client(self, bundle: str, host: str) -> httpx.AsyncClient:
        client = self._clients.get((bundle, host))
        if client is None:
            client = self._clients[bundle, host] = httpx.AsyncClient(
                verify=_context(bundle),
                trust_env=False,
                timeout=None,  # one deadline holds for the whole call
                limits=httpx.Limits(max_connections=None, keepalive_expiry=_IDLE_S),
            )
        return client

    def _resolve(self, namespace: str, name: str, port: int) -> str:
        """The base URL of one endpoint; LookupError says why there is none."""
        known = self.services.get((namespace, name))
        if known is not None:
            return known.rstrip("/")
        service = _by_name(self._source.objects("", "services", namespace), name)
        if service is None:
            raise LookupError(f'service "{name}" not found')
        spec = service.get("spec") or {}
        if spec.get("type") == "ExternalName":
            return f"https://{spec.get('externalName')}:{port}"
        ports = [each for each in spec.get("ports") or () if each.get("port") == port]
        if not ports:
            raise LookupError(f'no service port {port} found for service "{name}"')
        slices = self._source.objects("discovery.k8s.io", "endpointslices", namespace)
        found = sorted(_addresses(slices, name, ports[0].get("name") or ""))
        if not found:
            raise LookupError(f'no endpoints available for service "{name}"')
        return f"https://{found[next(self._turn) % len(found)]}"


def _by_name(objects: Iterable[Json], name: str) -> Json | None:
    return next((each for each in objects if each["metadata"]["name"] == name), None)


def _addresses(slices: Iterable[Json], service: str, port_name: str) -> Iterable[str]:
    for each in slices:
        labels = each["metadata"].get("labels") or {}
        if labels.get("kubernetes.io/service-name") != service:
            continue
        ports = [p["port"] for p in each.get("ports") or () if (p.get("name") or "") == port_name]
        for endpoint in each.get("endpoints") or ():
            # A condition that is not given means ready, as the API documents.
            if (endpoint.get("conditions") or {}).get("ready") is not False and ports:
                address = endpoint["addresses"][0]
                yield f"[{address}]:{ports[0]}" if ":" in address else f"{address}:{ports[0]}"


def _context(bundle: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As Go does: a name only in the subject does not count, and what is trusted need not be
    # self-signed.
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if bundle:
        try:
            context.load_verify_locations(cadata=base64.b64decode(bundle).decode("ascii"))
        except (binascii.Error, ValueError, ssl.SSLError) as error:
            raise CallError(
                "could not get REST client: unable to load root certificates: "
                "unable to parse bytes as PEM block"
            ) from error
    return context


def _why(error: Exception) -> str:
    chain: BaseException | None = error
    while chain is not None:
        match chain:
            case ssl.SSLCertVerificationError():
                return f"tls: failed to verify certificate: x509: {_certificate(chain)}"
            case ConnectionRefusedError():
                return f"dial tcp: connect: connection refused ({chain})"
            case LookupError():
                return str(chain.args[0])
            case TimeoutError():
                return "context deadline exceeded"
            case httpx.RemoteProtocolError():
                return "EOF"
        chain = chain.__cause__ or chain.__context__
    return str(error) or type(error).__name__


def _certificate(error: ssl.SSLCertVerificationError) -> str:
    unknown = {18, 19, 20, 21}  # X509_V_ERR: self-signed, or no issuer that is trusted
    if error.verify_code in unknown:
        return "certificate signed by unknown authority"
    if error.verify_code in {9, 10}:
        return f"certificate has expired or is not yet valid: {error.verify_message}"
    return str(error.verify_message)


def _decode(response: httpx.Response) -> Any:
    if not response.is_success:
        raise CallError(f"failed to call webhook: {_failure(response)}")
    try:
        return msgspec.json.decode(response.content)
    except msgspec.DecodeError as error:
        raise CallError(
            f"failed to call webhook: couldn't get version/kind; json parse error: {error}"
        ) from error


def _failure(response: httpx.Response) -> str:
    text = response.text[:_SHOWN_BYTES].strip() or "unknown"
    match response.status_code:
        case 400:
            return "the server rejected our request for an unknown reason"
        case 404:
            return "the server could not find the requested resource"
        case 503:
            return "the server is currently unable to handle the request"
        case code if code >= 500:
            return f'an error on the server ("{text}") has prevented the request from succeeding'
        case code:
            return (
                f"the server responded with the status code {code} "
                "but did not return more information"
            )
