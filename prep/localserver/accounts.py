"""Accounts, their login sessions and their API keys. Secrets are kept as hashes only."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from prep.localserver.errors import ApiError, auth_invalid, auth_required, bad_request, conflict, not_found

_SHORTEST_KEY_TO_PREVIEW = 20


@dataclass(frozen=True, kw_only=True)
class Account:
    """A user of the server; `created` is in Unix seconds."""

    id: str
    email: str
    password_hash: str
    role: str
    is_verified: bool
    created: float


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key to the API, without its secret; times are Unix seconds, `expires` None for never."""

    id: str
    name: str
    account_id: str
    preview: str
    created: float
    expires: float | None = None


def is_email(text: str) -> bool:
    """Tell whether a text looks like an e-mail address."""
    return re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", text) is not None


class Accounts:
    """All accounts, and who a request comes from."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_email: dict[str, Account] = {}
        self._by_id: dict[str, Account] = {}
        self._sessions: dict[str, str] = {}
        self._keys: dict[str, ApiKey] = {}

    def register(self, email: str, password: str) -> Account:
        """Add an account: the server's first is an admin and verified, others are neither.

        Raises:
            ApiError: 409 if the address is taken.
        """
        if email in self._by_email:
            raise conflict("Email already registered")
        is_first = not self._by_email
        account = Account(
            id=new_id("user"),
            email=email,
            password_hash=_hash(password),
            role="admin" if is_first else "rw",
            is_verified=is_first,
            created=self._clock(),
        )
        self._by_email[email] = self._by_id[account.id] = account
        return account

    def login(self, email: str, password: str) -> Account:
        """Find the account for an address and its password.

        Raises:
            ApiError: 400 if there is none, whichever of the two is wrong.
        """
        account = self._by_email.get(email)
        if account is None or account.password_hash != _hash(password):
            raise bad_request("Invalid email or password")
        return account

    def open_session(self, account: Account) -> str:
        """Give a token that stands for the account until it is closed."""
        token = secrets.token_urlsafe(32)
        self._sessions[_hash(token)] = account.id
        return token

    def close_session(self, token: str) -> None:
        """Forget a session; one that is not there is forgotten already."""
        self._sessions.pop(_hash(token), None)

    def add_key(self, account: Account, name: str, *, secret: str, lifetime: int | None = None) -> ApiKey:
        """Let a secret stand for an account, for `lifetime` seconds or for ever."""
        now = self._clock()
        key = ApiKey(
            id=new_id("key"),
            name=name,
            account_id=account.id,
            preview=_preview(secret),
            created=now,
            expires=None if lifetime is None else now + lifetime,
        )
        self._keys[_hash(secret)] = key
        return key

    def keys_of(self, account: Account) -> list[ApiKey]:
        """List an account's keys, oldest first."""
        return [key for key in self._keys.values() if key.account_id == account.id]

    def delete_key(self, account: Account, key_id: str) -> None:
        """Revoke a key.

        Raises:
            ApiError: 404 if the account has no such key.
        """
        for secret_hash, key in self._keys.items():
            if key.id == key_id and key.account_id == account.id:
                del self._keys[secret_hash]
                return
        raise not_found(f"API key '{key_id}' not found.")

    def authenticate(self, *, authorization: str | None, session: str | None) -> Account:
        """Find out whose request it is; an API key goes before a session.

        Raises:
            ApiError: 401 if there is no valid credential.
        """
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            return self._by_id[self._valid_key(secret.strip()).account_id]
        account_id = self._sessions.get(_hash(session)) if session else None
        if account_id is None:
            raise auth_required()
        return self._by_id[account_id]

    def _valid_key(self, secret: str) -> ApiKey:
        if not secret.startswith("sk-"):
            raise _not_a_key()
        key = self._keys.get(_hash(secret))
        if key is None or (key.expires is not None and key.expires <= self._clock()):
            raise auth_invalid()
        return key


def new_id(kind: str) -> str:
    """Make an id such as `sb130f96d9be54d453`, unlike any other, also one of an earlier server."""
    return kind + secrets.token_hex(8)


def new_key_secret() -> str:
    """Make the secret of an API key."""
    return "sk-" + secrets.token_hex(24)


def _not_a_key() -> ApiError:
    return auth_invalid("Control plane endpoints accept API keys or session cookies.")


def _preview(secret: str) -> str:
    return f"{secret[:7]}...{secret[-4:]}" if len(secret) >= _SHORTEST_KEY_TO_PREVIEW else "sk-..."


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
