"""Requests to a proxy, with requests: how they are signed, routed, sent, watched, and how they fail.

A call's clock starts with the first byte of its request and not before: where fifty calls begin at once, the
last of them waits for tens of milliseconds until this process has made fifty connections, which is
nothing that the server has done.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import gevent
import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from treadstone_user.transports import wire
from treadstone_user.transports.base import (
    AuthError,
    BadOutput,
    ConnectError,
    RequestTimeout,
    UsageError,
    redact,
)

CONNECTIONS = 10_000
"""How many connections to one server are kept for the next call, which is no limit to those in use."""

_CONNECT_SEC = 10.0
_LOOK_SEC = 1.0
_SAID_BYTES = 65536


class Stopped(BaseException):
    """Thrown into a call that is to stop; no library on its way takes it for an error of its own."""


class Silent(BaseException):
    """Thrown into a call that has waited too long."""


class Watch:
    """Looks after a waiting call from the event loop, at no cost for what arrives meanwhile.

    `since` is when the present silence began, on the monotonic clock, and `limit_sec` how long it may last.
    stop: see `DataPlane.stream`.
    """

    def __init__(self, since: float, limit_sec: float, stop: Callable[[], bool] | None = None) -> None:
        self.since = since
        self.limit_sec = limit_sec
        self._stop = stop

    def __enter__(self) -> None:
        self._greenlet = gevent.getcurrent()
        every = min(_LOOK_SEC, max(self.limit_sec / 10, 0.01))
        self._timer = gevent.get_hub().loop.timer(every, every)
        self._timer.start(self._look)

    def __exit__(self, *_: object) -> None:
        self._timer.stop()
        self._timer.close()

    def _look(self) -> None:
        if self._stop is not None and self._stop():
            self._greenlet.throw(Stopped())
        elif time.monotonic() - self.since > self.limit_sec:
            self._greenlet.throw(Silent())


class Channel:
    """Connections to servers, kept for the next call.

    key, auth: see `DataPlane`. Raises `AuthError`.
    """

    def __init__(self, key: str | None, auth: AuthBase | None) -> None:
        self._routes: dict[str, dict[str, Any]] = {}
        self._session = requests.Session()
        self._session.auth = auth or _Bearer(key)
        self._session.headers.update({"User-Agent": "treadstone-user", "Accept-Encoding": "identity"})
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter(pool_maxsize=CONNECTIONS, max_retries=0))

    def close(self) -> None:
        """Close the connections that are kept."""
        self._session.close()

    def prepare(
        self, method: str, url: str, body: Mapping[str, Any] | None, *, accept: str
    ) -> requests.PreparedRequest:
        """Do all that can be done before the clock of a call starts. Raises `UsageError`."""
        request = requests.Request(method, url, headers={"Accept": accept}, json=body)
        with _translated(0.0):
            return self._session.prepare_request(request)

    @contextmanager
    def sent(
        self, request: requests.PreparedRequest, timeout_sec: float
    ) -> Iterator[tuple[requests.Response, float]]:
        """Send a request, once, and give its response, of which nothing has been read; then close it.

        The second value is when the request was sent, on the monotonic clock.

        timeout_sec: between two bytes.
        Raises `CallError`, also for what fails while the response is read.
        """
        begun = time.monotonic()
        with _translated(timeout_sec):
            response = self._session.send(
                request,
                stream=True,
                allow_redirects=False,  # a redirected POST would become a GET
                timeout=(_CONNECT_SEC, timeout_sec),
                **self._route(str(request.url)),
            )
            with response:
                status = response.status_code
                if status >= 400:
                    raise wire.read_error(status, response.raw.read(_SAID_BYTES, decode_content=True))
                if not 200 <= status < 300:
                    raise BadOutput(f"status {status}, which the proxy does not answer")
                yield response, getattr(response.raw, "sent", begun)

    def _route(self, url: str) -> dict[str, Any]:
        """The environment's proxies and certificates for a URL; requests would read them for each call."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._routes:
            found = self._session.merge_environment_settings(url, {}, True, None, None)
            proxies = {} if _is_loopback(str(parts.hostname)) else found["proxies"]
            self._routes[origin] = {"proxies": proxies, "verify": found["verify"]}
        return self._routes[origin]


if TYPE_CHECKING:
    _Base = HTTPConnection
else:
    _Base = object


class _Stamped(_Base):
    """A connection whose responses tell as `sent` when their request was: the connection stood by then."""

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is None:
            self.connect()
        self._sent = time.monotonic()
        super().request(*args, **kwargs)

    def getresponse(self) -> Any:
        response: Any = super().getresponse()
        response.sent = self._sent
        return response


class _Connection(_Stamped, HTTPConnection):
    pass


class _TlsConnection(_Stamped, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    """Of requests, with connections that know when they sent."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        if type(manager) is urllib3.ProxyManager:  # SOCKS has connections of its own
            manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
        return manager


class _Bearer(AuthBase):
    """Signs with a key that it does not show. As every request is signed, no .netrc is looked at."""

    def __init__(self, key: str | None) -> None:
        if not key:
            raise AuthError(
                "an API key is needed: the proxy to sandboxes takes no login session", status=None
            )
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise AuthError("the API key has characters that no header can carry", status=None)
        self._header = f"Bearer {key}"

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._header
        return request


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@contextmanager
def _translated(timeout_sec: float) -> Iterator[None]:
    """Foreign errors become ours here and nowhere else."""
    try:
        yield
    except requests.ConnectTimeout as error:
        raise RequestTimeout(f"no connection within {_CONNECT_SEC:g} s") from error
    except (Silent, requests.Timeout, urllib3.exceptions.TimeoutError) as error:
        raise RequestTimeout(f"nothing more came within {timeout_sec:g} s") from error
    except (requests.ConnectionError, urllib3.exceptions.HTTPError) as error:
        raise ConnectError(reason(error)) from error
    except requests.RequestException as error:
        raise UsageError(redact(str(error))) from error
    except OSError as error:
        raise ConnectError(reason(error)) from error


def reason(error: BaseException) -> str:
    """What the system said, from below the layers of libraries that each add an address and a name."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            return redact(below.strerror)
        if isinstance(below, http.client.HTTPException):
            return redact(str(below) or type(below).__name__)
        below = below.__cause__ or below.__context__
    return redact(str(error))
