"""Accounts, their login sessions and their API keys. Secrets are kept as hashes only."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from prep.localserver.errors import (
    already_verified,
    auth_invalid,
    auth_required,
    bad_request,
    conflict,
    not_found,
    token_invalid,
    user_cap_exceeded,
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


@dataclass(frozen=True, kw_only=True)
class Mail:
    """What was mailed to an address to verify it; `sent` is in Unix seconds."""

    account_id: str
    email: str
    token: str
    sent: float


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a key is good for: the control plane or not; all, none or the selected ones of the sandboxes."""

    control_plane: bool = True
    data_plane: str = "all"
    sandbox_ids: tuple[str, ...] = ()


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
    """All accounts, and whom a credential stands for.

    Args:
        clock: tells the time in Unix seconds.
        cap: how many accounts there can be; None for any number.
    """

    def __init__(self, clock: Callable[[], float], *, cap: int | None = None) -> None:
        self._clock = clock
        self._cap = cap
        self._by_email: dict[str, Account] = {}
        self._by_id: dict[str, Account] = {}
        self._sessions: dict[str, str] = {}
        self._keys: dict[str, ApiKey] = {}
        self._mails: dict[str, Mail] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def register(self, email: str, password: str) -> Account:
        """Add an account: the server's first is an admin and verified, others are neither.

        Raises:
            ApiError: 409 if the address is taken, 503 if there are as many accounts as there can be.
        """
        if email in self._by_email:
            raise conflict("Email already registered")
        if self._cap is not None and len(self) >= self._cap:
            raise user_cap_exceeded(len(self), self._cap)
        is_first = not self._by_email
        account = Account(
            id=new_id("user"),
            email=email,
            password_hash=_hash(password),
            role="admin" if is_first else "rw",
            is_verified=is_first,
            created=self._clock(),
        )
        self._keep(account)
        if not account.is_verified:
            token = secrets.token_urlsafe(32)
            self._mails[token] = Mail(account_id=account.id, email=email, token=token, sent=account.created)
        return account

    def mail_to(self, email: str) -> Mail:
        """Give the mail that verifies an address.

        Raises:
            ApiError: 404 if none was sent to it.
        """
        for mail in self._mails.values():
            if mail.email == email:
                return mail
        raise not_found(f"verification token '{email}' not found.")

    def verify(self, token: str) -> None:
        """Verify the address that a token was mailed to.

        Raises:
            ApiError: 400 if there is no such token, or if it has done its work already.
        """
        mail = self._mails.get(token)
        if mail is None:
            raise token_invalid()
        account = self._by_id[mail.account_id]
        if account.is_verified:
            raise already_verified()
        self._keep(replace(account, is_verified=True))

    def find(self, account_id: str) -> Account:
        """Find an account by its id.

        Raises:
            ApiError: 404 if there is none.
        """
        if account_id not in self._by_id:
            raise not_found(f"User '{account_id}' not found.")
        return self._by_id[account_id]

    def newest_first(self, containing: str = "") -> list[Account]:
        """List the accounts whose address contains a text, in upper or lower case."""
        found = [a for a in self._by_id.values() if containing.lower() in a.email.lower()]
        return sorted(found, key=lambda account: (account.created, account.id), reverse=True)

    def delete(self, account: Account) -> None:
        """Remove an account with its keys, sessions and mails."""
        del self._by_id[account.id], self._by_email[account.email]
        self._keys = {h: key for h, key in self._keys.items() if key.account_id != account.id}
        self._sessions = {h: owner for h, owner in self._sessions.items() if owner != account.id}
        self._mails = {token: mail for token, mail in self._mails.items() if mail.email != account.email}

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
        scope: Scope | None = None,
    ) -> ApiKey:
        """Let a secret stand for an account, for `lifetime` seconds or for ever, in all or within a scope."""
        now = self._clock()
        key = ApiKey(
            id=new_id("key"),
            name=name,
            account_id=account.id,
            preview=_preview(secret),
            created=now,
            expires=None if lifetime is None else now + lifetime,
            scope=scope or Scope(),
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

    def of_key(self, secret: str) -> tuple[Account, Scope]:
        """Tell whom the secret of a key stands for, and within what scope.

        Raises:
            ApiError: 401 if it stands for nobody, or no longer.
        """
        key = self._keys.get(_hash(secret))
        if key is None or (key.expires is not None and key.expires <= self._clock()):
            raise auth_invalid()
        return self._by_id[key.account_id], key.scope

    def of_session(self, token: str | None) -> Account:
        """Tell whom a session stands for.

        Raises:
            ApiError: 401 if there is none.
        """
        account_id = self._sessions.get(_hash(token)) if token else None
        if account_id is None:
            raise auth_required()
        return self._by_id[account_id]

    def _keep(self, account: Account) -> None:
        self._by_email[account.email] = self._by_id[account.id] = account


def new_id(kind: str) -> str:
    """Make an id such as `sb130f96d9be54d453`, unlike any other, also one of an earlier server."""
    return kind + secrets.token_hex(8)


def new_key_secret() -> str:
    """Make the secret of an API key."""
    return "sk-" + secrets.token_hex(24)


def _preview(secret: str) -> str:
    return f"{secret[:7]}...{secret[-4:]}" if len(secret) >= _SHORTEST_KEY_TO_PREVIEW else "sk-..."


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
