"""Who a request comes from, and whether that may do what it asks."""

from __future__ import annotations

from flask import request

from prep.localserver.accounts import Account, Accounts
from prep.localserver.errors import ApiError, auth_invalid, auth_required, forbidden

SESSION_COOKIE = "session"


class Access:
    """Reads the credential of the request that is being answered."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def control(self) -> Account:
        """Give the account that a request to the control plane comes from; a key goes before a session.

        Raises:
            ApiError: 401 without a valid credential, 403 for a key that is not for the control plane.
        """
        secret = _bearer()
        if secret is None:
            return self._accounts.of_session(_session())
        if not secret.startswith("sk-"):
            raise auth_invalid("Control plane endpoints accept API keys or session cookies.")
        account, scope = self._accounts.of_key(secret)
        if not scope.control_plane:
            raise forbidden("This API key does not have control plane access.")
        return account

    def data(self, sandbox_id: str) -> Account:
        """Give the account that a request to a sandbox comes from: only a key opens the data plane.

        Raises:
            ApiError: 401 without a valid key, 403 for a key that is not for this sandbox.
        """
        secret = _bearer()
        if secret is None:
            raise self._without_key()
        if not secret.startswith("sk-"):
            raise auth_invalid("API Key required for data plane access.")
        account, scope = self._accounts.of_key(secret)
        if scope.data_plane == "none":
            raise forbidden("This API key does not have data plane access.")
        if scope.data_plane == "selected" and sandbox_id not in scope.sandbox_ids:
            raise forbidden("This API key does not have access to this sandbox.")
        return account

    def admin(self) -> Account:
        """Give the admin that a request comes from.

        Raises:
            ApiError: 401 without a valid credential, 403 for anybody else.
        """
        account = self.control()
        if account.role != "admin":
            raise forbidden("Admin required")
        return account

    def admin_session(self) -> Account:
        """Give the admin whose session a request comes with: what is delicate opens to no key.

        Raises:
            ApiError: 401 without a valid session, 403 for anybody else.
        """
        account = self.admin()
        if _bearer() is not None:
            raise auth_invalid("Admin session cookie required.")
        return account

    def _without_key(self) -> ApiError:
        try:
            self._accounts.of_session(_session())
        except ApiError:
            return auth_required("API Key required.")
        return auth_invalid("API Key required for data plane access.")


def _bearer() -> str | None:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def _session() -> str | None:
    return request.cookies.get(SESSION_COOKIE)
