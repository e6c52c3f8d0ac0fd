"""Accounts, their login sessions and their API keys. Secrets are kept as hashes only."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from prep.localserver.errors import (
    ApiError,
    auth_invalid,
    auth_required,
    bad_request,
    conflict,
    forbidden,
    not_found,
    platform_full,
)

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


@dataclass(frozen=True)
class Scope:
    """What a key opens: the API itself, and the proxies of all sandboxes, of some, or of none."""

    control_plane: bool = True
    mode: str = "all"
    sandbox_ids: tuple[str, ...] = ()

    def opens(self, sandbox_id: str) -> bool:
        """Whether the proxy of a sandbox is open to the key."""
        return self.mode == "all" or (self.mode == "selected" and sandbox_id in self.sandbox_ids)


@dataclass(frozen=True, kw_only=True)
class ApiKey:
    """A key to the API, without its secret; times are Unix seconds, `expires` None for never."""

    id: str
    name: str
    account_id: str
    preview: str
    created: float
    expires: float | None = None
    scope: Scope = Scope()


def is_email(text: str) -> bool:
    """Tell whether a text looks like an e-mail address."""
    return re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", text) is not None


class Accounts:
    """All accounts, and who a request comes from."""

    def __init__(self, clock: Callable[[], float], *, limit: int | None = None) -> None:
        self._clock = clock
        self._limit = limit
        self._tokens: dict[str, str] = {}
        self._by_email: dict[str, Account] = {}
        self._by_id: dict[str, Account] = {}
        self._sessions: dict[str, str] = {}
        self._keys: dict[str, ApiKey] = {}

    def register(self, email: str, password: str) -> Account:
        """Add an account: the server's first is an admin and verified, others are neither.

        Raises:
            ApiError: 409 if the address is taken, 503 if the server takes no more accounts.
        """
        if email in self._by_email:
            raise conflict("Email already registered")
        if self._limit is not None and len(self._by_email) >= self._limit:
            raise platform_full("user_cap_exceeded", "registered users", len(self._by_email), self._limit)
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

    def __len__(self) -> int:
        return len(self._by_email)

    def by_email(self, email: str) -> Account | None:
        """Find an account by its address."""
        return self._by_email.get(email)

    def by_id(self, account_id: str) -> Account | None:
        """Find an account by its id."""
        return self._by_id.get(account_id)

    def verification_token(self, account: Account) -> str:
        """Give the token that confirms an account's address; always the same one."""
        known = next((token for token, owner in self._tokens.items() if owner == account.id), None)
        token = known or secrets.token_urlsafe(24)
        self._tokens[token] = account.id
        return token

    def verify(self, token: str) -> None:
        """Confirm the address that a token was mailed to.

        Raises:
            ApiError: 400 if it is no token, or was used.
        """
        account = self._by_id.get(self._tokens.pop(token, ""))
        if account is None:
            raise bad_request("Invalid or expired verification token")
        self._by_email[account.email] = self._by_id[account.id] = replace(account, is_verified=True)

    def delete(self, account: Account) -> None:
        """Forget an account and its sessions."""
        del self._by_email[account.email], self._by_id[account.id]
        self._sessions = {token: owner for token, owner in self._sessions.items() if owner != account.id}

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

    def add_key(
        self,
        account: Account,
        name: str,
        *,
        secret: str,
        lifetime: int | None = None,
        scope: Scope = Scope(),
    ) -> ApiKey:
        """Let a secret stand for an account, for `lifetime` seconds or for ever."""
        now = self._clock()
        key = ApiKey(
            id=new_id("key"),
            name=name,
            account_id=account.id,
            preview=_preview(secret),
            created=now,
            expires=None if lifetime is None else now + lifetime,
            scope=scope,
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
            ApiError: 401 if there is no valid credential, 403 if the key is not for the control plane.
        """
        key = self._bearer(authorization)
        if key is not None:
            if not key.scope.control_plane:
                raise forbidden("API key does not allow control plane access.")
            return self._by_id[key.account_id]
        account_id = self._sessions.get(_hash(session)) if session else None
        if account_id is None:
            raise auth_required()
        return self._by_id[account_id]

    def authenticate_data_plane(self, *, authorization: str | None, sandbox_id: str) -> Account:
        """Find out whose request to a sandbox's proxy it is: there, only an API key counts.

        Raises:
            ApiError: 401 if there is no valid key, 403 if the key does not open the sandbox.
        """
        key = self._bearer(authorization)
        if key is None:
            raise auth_required()
        if not key.scope.opens(sandbox_id):
            raise forbidden("API key does not allow data plane access to this sandbox.")
        return self._by_id[key.account_id]

    def _bearer(self, authorization: str | None) -> ApiKey | None:
        scheme, _, secret = (authorization or "").partition(" ")
        return self._valid_key(secret.strip()) if scheme.lower() == "bearer" else None

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
