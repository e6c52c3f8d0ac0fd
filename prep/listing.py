"""The sandboxes of an account that carry a label, from its whole list: the API's own filter fails."""

from __future__ import annotations

from typing import Any

from prep.api import Api, Login
from treadstone_user.model import LABEL_KEY
from treadstone_user.transports.base import MAX_PAGE, BadOutput


def list_labelled(api: Api, login: Login, label: str) -> list[dict[str, Any]]:
    """All sandboxes that carry a label, also those being deleted; see `list_loadtest`."""
    return [row for row in list_loadtest(api, login) if label_of(row) == label]


def label_of(row: dict[str, Any]) -> str:
    """The label of a row, as the CLI writes it."""
    return f"{LABEL_KEY}:{row['labels'][LABEL_KEY]}"


def list_loadtest(api: Api, login: Login) -> list[dict[str, Any]]:
    """All sandboxes that runs and stores have labelled, also those being deleted. Raises `CallError`.

    Rows move between pages while states change: whoever must be sure lists again.
    """
    found: dict[str, dict[str, Any]] = {}
    offset = 0
    while True:
        page = api.object("GET", "/v1/sandboxes", login, params={"limit": MAX_PAGE, "offset": offset})
        items = page.get("items")
        if not isinstance(items, list):
            raise BadOutput("the list of sandboxes has no items")
        found |= {str(row["id"]): row for row in items if LABEL_KEY in (row.get("labels") or {})}
        offset += len(items)
        if not items or offset >= int(page.get("total", 0)):
            return list(found.values())
