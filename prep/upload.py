"""Documents into an S3-compatible store: ``python -m prep.upload --endpoint URL --bucket B ...``.

Puts the files of a list, as prep.documents makes it, under their paths, signed with AWS Signature Version 4
(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment). What is up stands in a list of its own, with
`url`, for `data:` in a scenario. Can be interrupted and repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import requests
from requests.exceptions import RequestException

from prep.batch import Throttle, run_batch
from prep.commandline import Bar, counted, positive, run_command, say, whole
from treadstone_user.datafile import load_rows
from treadstone_user.exitcode import ExitCode
from treadstone_user.retry import backoff
from treadstone_user.settings import read_base_url
from treadstone_user.signing import AwsAuth
from treadstone_user.transports.base import (
    ConfigError,
    Conflict,
    ConnectError,
    ServerError,
    TreadstoneError,
    api_error,
    redact,
)

_TRIES = 4
_SAID_LIMIT = 300
_SHOWN_FAILURES = 10


def main(arguments: list[str] | None = None) -> int:
    """Upload documents; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m prep.upload",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--endpoint", required=True, metavar="URL", help="the store, such as https://minio.example.com:9000")
    add("--bucket", required=True, metavar="NAME")
    add("--from-file", type=Path, required=True, metavar="LIST", help="a JSONL list with `path`s beside it")
    add("--prefix", default="", help="in front of each key")
    add("--make-bucket", action="store_true", help="make the bucket, if it is not there")
    add("--region", help="(default: AWS_REGION, AWS_DEFAULT_REGION, or us-east-1)")
    add("--out", type=Path, metavar="FILE", help="list what is up (default: uploaded.jsonl beside LIST)")
    add("--concurrency", type=whole, default=10, metavar="N", help="how many at once (default: 10)")
    add("--rate", type=positive, metavar="N", help="how many to begin a second, at most")
    add("--timeout", type=positive, default=60.0, metavar="SEC", help="of one request (default: 60)")
    options = parser.parse_args(arguments)

    def command() -> ExitCode:
        auth = AwsAuth.from_environment(os.environ, service="s3", region=options.region)
        endpoint = read_base_url(options.endpoint, "--endpoint").url
        store = ObjectStore(endpoint, options.bucket, auth, timeout_sec=options.timeout)
        if options.make_bucket:
            store.make_bucket()
        out = options.out or options.from_file.with_name("uploaded.jsonl")
        throttle = Throttle(options.rate)
        return upload(store, options.from_file, options.prefix, out, options.concurrency, throttle)

    return run_command(command)


class ObjectStore:
    """A bucket, by path-style addresses, which every S3-compatible store takes."""

    def __init__(self, endpoint: str, bucket: str, auth: AwsAuth, *, timeout_sec: float) -> None:
        self._bucket_url = f"{endpoint}/{quote(bucket)}"
        self._auth = auth
        self._timeout_sec = timeout_sec
        self._local = threading.local()

    def make_bucket(self) -> None:
        """Make the bucket, unless it is there. Raises `TreadstoneError`."""
        try:
            self._put(self._bucket_url, b"")
        except Conflict:
            return  # it is there already

    def put(self, key: str, content: bytes) -> str:
        """Put an object, again where the store fails; returns its URL. Raises `TreadstoneError`."""
        url = f"{self._bucket_url}/{quote(key)}"
        attempt = 0
        while True:
            attempt += 1
            try:
                self._put(url, content)
            except (ConnectError, ServerError):
                if attempt >= _TRIES:
                    raise
                time.sleep(backoff(attempt))
            else:
                return url

    def _put(self, url: str, content: bytes) -> None:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
        try:
            response = session.put(url, data=content, auth=self._auth, timeout=self._timeout_sec)
        except RequestException as error:
            raise ConnectError(f"{self._bucket_url} cannot be reached: {type(error).__name__}") from error
        if response.status_code >= 300:
            raise api_error(max(response.status_code, 400), redact(_said(response.text)))


def _said(text: str) -> str:
    """What a store says of an error, which it writes as XML."""
    parts = [match[1] for name in ("Code", "Message") if (match := re.search(f"<{name}>([^<]*)", text))]
    return ": ".join(parts) or text[:_SAID_LIMIT].strip() or "nothing"


def upload(
    store: ObjectStore, listed: Path, prefix: str, out: Path, concurrency: int, throttle: Throttle
) -> ExitCode:
    """Put what is listed and not up yet. Raises `ConfigError`, `Interrupted`."""
    rows = load_rows(listed)
    wrong = [number for number, row in enumerate(rows, start=1) if not isinstance(row.get("path"), str)]
    if wrong:
        raise ConfigError(f"{listed}: line {wrong[0]}: it has no `path`")
    for number, row in enumerate(rows, start=1):
        place = PurePosixPath(row["path"])
        if place.is_absolute() or ".." in place.parts:
            raise ConfigError(f"{listed}: line {number}: its `path` leads out of the folder of the list")
    done: dict[str, dict[str, Any]] = {}
    if out.exists():
        done = {str(row.get("key")): dict(row) for row in load_rows(out)}
    failed: list[tuple[str, TreadstoneError]] = []

    def work(row: Mapping[str, Any]) -> dict[str, Any] | None:
        key = prefix + row["path"]
        try:
            content = (listed.parent / row["path"]).read_bytes()
        except OSError as error:
            raise ConfigError(f"{row['path']} cannot be read: {error.strerror}") from error
        digest = hashlib.sha256(content).hexdigest()
        if done.get(key, {}).get("sha256") == digest:
            return None
        return {"url": store.put(key, content), "key": key, "bytes": len(content), "sha256": digest}

    with Bar("documents", len(rows)) as bar:

        def take(_: Mapping[str, Any], result: dict[str, Any] | None) -> None:
            if result is not None:
                done[result["key"]] = result
            bar.step(failed=len(failed))

        def fail(row: Mapping[str, Any], error: TreadstoneError) -> None:
            failed.append((row["path"], error))
            bar.step(failed=len(failed))

        run_batch(
            rows,
            work,
            concurrency=concurrency,
            throttle=throttle,
            on_result=take,
            on_error=fail,
            save=lambda: _write(out, done),
        )
    for path, error in failed[:_SHOWN_FAILURES]:
        say(f"  {path}: {error.kind}: {error}")
    say(f"{counted(len(done), 'document')} up, {len(failed)} failed, in {out}")
    return ExitCode.REQUESTS_FAILED if failed else ExitCode.OK


def _write(out: Path, done: Mapping[str, Mapping[str, Any]]) -> None:
    if not done:
        return
    temporary = out.with_name(out.name + ".tmp")
    try:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in done.values()), encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {out}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
