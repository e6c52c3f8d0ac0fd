"""A run as the live page shows it: plain values, at any moment of it and after it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadstone_user.orders import Phase
from treadstone_user.session import Session

ARTIFACTS = ("run.json", "summary.json", "events.jsonl", "truth.jsonl")
"""The files of a run's folder that the page links."""


def describe_run(session: Session) -> dict[str, Any]:
    """What the page shows of a run; of bounded size, and without any credential."""
    run = session.folder.run
    finished = session.phase is Phase.FINISHED
    summary = session.summary or {}
    return {
        "run_id": session.folder.run_id,
        "label": session.folder.label,
        "phase": str(session.phase),
        "ending": str(session.ending) if finished else None,
        "scenario": (run.get("scenario") or {}).get("name"),
        "planned": run.get("planned"),
        "base_url": run.get("base_url"),
        "transport": run.get("transport"),
        "started_at": run.get("started_at"),
        "elapsed_ms": session.elapsed_ms,
        "live": session.live.snapshot(session.elapsed_ms),
        "cleanup": _cleanup(session.cleanup),
        "remedy": session.remedy,
        "verdict": summary.get("verdict"),
        "health": [] if finished else session.hands.health(),
        "folder": str(session.folder.path),
        "files": files(session.folder.path),
    }


def _cleanup(cleanup: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if cleanup is None:
        return None
    told = {name: cleanup.get(name) for name in ("ran", "reason", "passes", "found", "verified", "problem")}
    remaining: Mapping[str, str] = cleanup.get("remaining") or {}
    return told | {"remaining": len(remaining), "kept": len(cleanup.get("kept") or {})}


def files(folder: Path) -> list[dict[str, Any]]:
    """The artifacts that are there, with their sizes in bytes; none where the folder has gone."""
    found = []
    for name in ARTIFACTS:
        try:
            found.append({"name": name, "bytes": (folder / name).stat().st_size})
        except OSError:
            continue
    return found


class Shown:
    """What the page shows of a process: its present run, or the last one, and where its runs lie."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._problem: str | None = None
        self._preparing = False
        self._folders: dict[str, Path] = {}

    def preparing(self) -> None:
        """Say that a run is asked for, and its server is checked."""
        self._preparing, self._problem = True, None

    def started(self, session: Session) -> None:
        """Show a run from now on."""
        self._session, self._preparing = session, False
        self._folders[session.folder.run_id] = session.folder.path

    def not_started(self, problem: str) -> None:
        """Say why a run did not start."""
        self._problem, self._preparing = problem, False

    def view(self) -> dict[str, Any]:
        """``run``, None where there was none so far; ``preparing``, whether the next one is on its way.

        ``problem`` says why it did not start, None where all is well.
        """
        run = describe_run(self._session) if self._session is not None else None
        return {"run": run, "problem": self._problem, "preparing": self._preparing}

    def folder(self, run_id: str) -> Path | None:
        """The folder of a run of this process; None for any other."""
        return self._folders.get(run_id)
