"""Signed requests, for gateways in front of a deployment and for object stores: `requests` auths.

Both sign a request as it is about to be sent, so they go wherever requests takes an ``auth``, Locust's
`HttpUser.client` included. Keys come from an environment, and no text of an auth shows them.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import quote, unquote_to_bytes, urlsplit

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from requests import PreparedRequest
from requests.auth import AuthBase

from treadstone_user.transports.base import ConfigError

_TC3 = "TC3-HMAC-SHA256"
_UNSIGNED = {
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "user-agent",
}
"""Headers that requests or a session adds by itself and proxies change."""
_OWN_PORTS = {"http": 80, "https": 443}


class Tc3Auth(AuthBase):
    """Tencent Cloud's API signature, version 3.

    By "Signature Method v3" of its API documentation: of the headers it signs Content-Type, Host, and
    X-TC-Action where there is one.

    service: the product, such as ``cvm``. action, version, region: sent as X-TC-... headers, where given.
    token: of temporary credentials. clock: Unix seconds.
    """

    def __init__(
        self,
        secret_id: str,
        secret_key: str,
        *,
        service: str,
        action: str | None = None,
        version: str | None = None,
        region: str | None = None,
        token: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret_id = secret_id
        self._secret_key = secret_key
        self._service = service
        self._told = {
            "X-TC-Action": action,
            "X-TC-Version": version,
            "X-TC-Region": region,
            "X-TC-Token": token,
        }
        self._clock = clock

    def __repr__(self) -> str:
        return f"Tc3Auth({self._service!r})"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **more: Any) -> Self:
        """With TC3_SECRET_ID and TC3_SECRET_KEY, or TENCENTCLOUD_SECRET_ID and TENCENTCLOUD_SECRET_KEY.

        Temporary ones have a token in TC3_TOKEN or TENCENTCLOUD_TOKEN. Raises `ConfigError` where keys lack.
        """
        prefix = "TC3" if "TC3_SECRET_ID" in environment else "TENCENTCLOUD"
        keys = _keys(environment, f"{prefix}_SECRET_ID", f"{prefix}_SECRET_KEY")
        return cls(*keys, token=environment.get(f"{prefix}_TOKEN") or None, **more)

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign a request."""
        now = int(self._clock())
        headers = request.headers
        headers.update({name: value for name, value in self._told.items() if value is not None})
        headers["X-TC-Timestamp"] = str(now)
        # It is signed, so it has to be there; a GET may have no other.
        plain = "application/x-www-form-urlencoded" if request.method == "GET" else "application/json"
        headers.setdefault("Content-Type", plain)
        signed = {"content-type": headers["Content-Type"], "host": _host(request)}
        if "X-TC-Action" in headers:
            signed["x-tc-action"] = headers["X-TC-Action"]
        canonical = tc3_canonical_request(request, signed)
        date = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
        scope = f"{date}/{self._service}/tc3_request"
        to_sign = f"{_TC3}\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = tc3_signature(self._secret_key, date, self._service, to_sign)
        headers["Authorization"] = (
            f"{_TC3} Credential={self._secret_id}/{scope}, "
            f"SignedHeaders={';'.join(sorted(signed))}, Signature={signature}"
        )
        return request


def tc3_canonical_request(request: PreparedRequest, signed: Mapping[str, str]) -> str:
    """The text that stands for a request. signed: the headers, by their names in lower case."""
    parts = urlsplit(request.url or "")
    lines = [f"{name}:{value.strip().lower()}\n" for name, value in sorted(signed.items())]
    return "\n".join(
        [
            request.method or "GET",
            parts.path or "/",
            parts.query,
            "".join(lines),
            ";".join(sorted(signed)),
            hashlib.sha256(_body(request)).hexdigest(),
        ]
    )


def tc3_signature(secret_key: str, date: str, service: str, to_sign: str) -> str:
    """The signature, in hex, by keys derived from the date and the service."""
    key = f"TC3{secret_key}".encode()
    for part in (date, service, "tc3_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()


class AwsAuth(AuthBase):
    """AWS Signature Version 4, by botocore; for ``s3``, also of MinIO and others, with the rules of S3.

    It signs all headers but those that requests adds by itself. The query goes out encoded as the protocol
    has it, and so does the path for S3, which encodes what it got once more before it verifies.
    token: of temporary credentials.
    """

    def __init__(
        self, access_key: str, secret_key: str, *, service: str, region: str, token: str | None = None
    ) -> None:
        signer = _S3Signer if service == "s3" else _Signer
        self._signer = signer(Credentials(access_key, secret_key, token), service, region)
        self._service = service

    def __repr__(self) -> str:
        return f"AwsAuth({self._service!r})"

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], *, service: str, region: str | None = None
    ) -> Self:
        """With AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN where it is set.

        region: else AWS_REGION, AWS_DEFAULT_REGION, or us-east-1. Raises `ConfigError` where keys lack.
        """
        found = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        return cls(
            *_keys(environment, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            service=service,
            region=region or found,
            token=environment.get("AWS_SESSION_TOKEN") or None,
        )

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign a request."""
        request.url = _encoded(request.url or "", path_too=self._service == "s3")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _UNSIGNED}
        signed = AWSRequest(request.method, request.url, headers, _body(request))
        self._signer.add_auth(signed)
        request.headers.update(signed.headers.items())
        return request


class _KeepsDate:
    """botocore signs Date instead of X-Amz-Date where both are there; S3's own example has both signed."""

    def _set_necessary_date_headers(self, request: AWSRequest) -> None:
        if "X-Amz-Date" in request.headers:
            del request.headers["X-Amz-Date"]
        request.headers["X-Amz-Date"] = request.context["timestamp"]


class _Signer(_KeepsDate, SigV4Auth):  # type: ignore[misc]
    pass


class _S3Signer(_KeepsDate, S3SigV4Auth):  # type: ignore[misc]
    pass


def _keys(environment: Mapping[str, str], *names: str) -> list[str]:
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} must be set: keys come from the environment alone")
    return [environment[name] for name in names]


def _host(request: PreparedRequest) -> str:
    """The header as it will be sent: with the port where it is not the scheme's own."""
    parts = urlsplit(request.url or "")
    host = parts.netloc.rpartition("@")[2]
    return request.headers.get("Host") or host.removesuffix(f":{_OWN_PORTS.get(parts.scheme)}")


def _encoded(url: str, *, path_too: bool) -> str:
    parts = urlsplit(url)
    pairs = [pair.partition("=") for pair in parts.query.replace("+", " ").split("&")]
    query = "&".join(_encode(name) + equals + _encode(value) for name, equals, value in pairs)
    path = _encode(parts.path, kept="/") if path_too else parts.path
    return parts._replace(path=path, query=query).geturl()


def _encode(text: str, *, kept: str = "") -> str:
    """All but unreserved characters (RFC 3986, 2.3) encoded, whatever was encoded before."""
    return quote(unquote_to_bytes(text), safe=f"-._~{kept}")


def _body(request: PreparedRequest) -> bytes:
    body = request.body
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes):
        return body
    raise ConfigError("a signed request wants its body as bytes or text: the signature is over all of it")
