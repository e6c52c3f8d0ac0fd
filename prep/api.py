"""Treadstone's API as preparing needs it: accounts, keys, sandboxes, by an admin or by an account itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import InvalidHeader, RequestException, Timeout

from treadstone_user.retry import backoff
from treadstone_user.transports.base import (
    BadOutput,
    CallError,
    ConnectError,
    QuotaExceeded,
    RequestTimeout,
    ServerError,
    api_error,
    redact,
)

_SAID_LIMIT = 300
_LONGEST_WAIT_SEC = 30.0


@dataclass(frozen=True, slots=True)
class Login:
    """Whose request it is: by an API key, or by a session's token. Both are secret."""

    key: str | None = None
    session: str | None = None

    def __repr__(self) -> str:
        return "Login()"

    def headers(self) -> dict[str, str]:
        """The header that says it."""
        if self.key is not None:
            return {"Authorization": f"Bearer {self.key}"}
        return {"Cookie": f"session={self.session}"} if self.session is not None else {}


class Api:
    """Calls to one server, from many threads. Each raises `CallError`.

    What fails on the way, or with 5xx, is tried again with growing pauses, and a 429 that says when
    (Retry-After), then; other refusals are final, also the 429 of a plan. A call
    whose answer was lost is tried again, too: whoever makes something looks first whether it is there.

    timeout_sec: of one try. tries: how often a call is sent at most.
    """

    def __init__(self, base_url: str, *, timeout_sec: float, tries: int = 4) -> None:
        self.base_url = base_url
        self._timeout_sec = timeout_sec
        self._tries = tries
        self._local = threading.local()

    def call(
        self,
        method: str,
        path: str,
        login: Login | None = None,
        *,
        json: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        tries: int | None = None,
    ) -> requests.Response:
        """Send a request, again where that makes sense, and return its answer of 2xx."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._once(method, path, login or Login(), json, params)
            except CallError as error:
                if attempt >= (tries or self._tries) or not _is_passing(error):
                    raise
                time.sleep(getattr(error, "retry_after", None) or backoff(attempt))

    def _once(
        self,
        method: str,
        path: str,
        login: Login,
        json: Mapping[str, Any] | None,
        params: Mapping[str, Any] | None,
    ) -> requests.Response:
        try:
            response = self._session().request(
                method,
                self.base_url + path,
                json=json,
                params=params,
                headers=login.headers(),
                auth=_as_it_is,
                timeout=self._timeout_sec,
                allow_redirects=False,
            )
        except Timeout as error:
            raise RequestTimeout(f"no answer within {self._timeout_sec:g} s") from error
        except NoConnection as error:
            raise ConnectError(f"{self.base_url} cannot be reached") from error
        except InvalidHeader:
            # requests would repeat the header, and that is the secret.
            raise BadOutput("its key holds what no request can carry") from None
        except RequestException as error:
            raise BadOutput(redact(str(error)[:_SAID_LIMIT])) from error
        if response.status_code >= 300:
            raise _refusal(response)
        return response

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # each request names its own
        return session

    def object(self, *arguments: Any, **more: Any) -> dict[str, Any]:
        """The JSON object that a call answers; see `call`."""
        response = self.call(*arguments, **more)
        try:
            content = response.json()
        except ValueError as error:
            raise BadOutput(f"status {response.status_code} and no JSON") from error
        if not isinstance(content, dict):
            raise BadOutput(f"status {response.status_code} and no JSON object")
        return content

    def log_in(self, email: str, password: str) -> Login:
        """An account's session."""
        response = self.call("POST", "/v1/auth/login", json={"email": email, "password": password})
        token = response.cookies.get("session") or _cookie(response)
        if token is None:
            raise BadOutput("the login answered without a session")
        return Login(session=token)


def _cookie(response: requests.Response) -> str | None:
    name, _, value = response.headers.get("Set-Cookie", "").partition(";")[0].partition("=")
    return value if name == "session" and value else None


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """No further credential; else requests would look for a password in ~/.netrc."""
    return request


def _refusal(response: requests.Response) -> CallError:
    if response.status_code < 400:
        return BadOutput(f"status {response.status_code}, which the API does not answer")
    try:
        inner = response.json()["error"]
        message = str(inner.get("message", inner))
    except (ValueError, KeyError, TypeError, AttributeError):
        message = response.text[:_SAID_LIMIT].strip() or "nothing"
    error: CallError = api_error(response.status_code, redact(message[:_SAID_LIMIT]))
    said = response.headers.get("Retry-After", "")
    if said.isdecimal():
        error.retry_after = min(float(said), _LONGEST_WAIT_SEC)  # type: ignore[attr-defined]
    return error


def _is_passing(error: CallError) -> bool:
    """Whether the same call may succeed in a moment."""
    if isinstance(error, QuotaExceeded):
        return hasattr(error, "retry_after")
    return isinstance(error, ConnectError | RequestTimeout | ServerError)
