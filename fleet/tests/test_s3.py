"""A store in a bucket: a server that speaks S3 (moto) on a free port of the loopback, also one that fails now and
then.
"""

from __future__ import annotations

import http.server
import os
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from maker import START, Maker

import isotherm_fleet
from isotherm_fleet import contract
from isotherm_fleet.compact import Compactor, Options
from isotherm_fleet.errors import FleetError
from isotherm_fleet.fleet import Fleet
from isotherm_fleet.store import Store, open_store

pytest.importorskip("s3fs", reason="skipped: needs s3fs (scripts/setup.sh fleet)")
BUCKET = "fleet"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an S3 server."""
    moto = pytest.importorskip("moto.server", reason="skipped: needs moto[server] (scripts/setup.sh fleet)")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    yield f"http://{host}:{port}"
    running.stop()


def options(endpoint: str) -> dict[str, Any]:
    return {"client_kwargs": {"endpoint_url": endpoint}, "skip_instance_cache": True}


@pytest.fixture
def bucket(server: str, tmp_path: Path) -> tuple[Store, Path]:
    """A store in the bucket, and the same store in a folder."""
    small = Maker(tmp_path / "local", seed=4, hosts=2, intervals_per_hour=2)
    small.fill(2)
    store = open_store(f"s3://{BUCKET}/{tmp_path.name}", options(server))
    if not store.fs.exists(BUCKET):
        store.fs.mkdir(BUCKET)
    for path in (tmp_path / "local").rglob("*.parquet"):
        store.fs.pipe_file(store.full(str(path.relative_to(tmp_path / "local"))), path.read_bytes())
    return store, tmp_path / "local"


def test_answers_are_those_of_a_folder(bucket: tuple[Store, Path]) -> None:
    store, local = bucket
    for name in ("wss", "cold", "coverage"):
        expected = isotherm_fleet.open(str(local)).query(name).rows()
        assert Fleet(store).query(name).rows() == expected and expected


def test_a_compaction_in_a_bucket_gives_equal_answers_and_names(bucket: tuple[Store, Path]) -> None:
    store, local = bucket
    before = Fleet(store).query("cold").rows()
    for each in (store, open_store(str(local))):
        list(Compactor(each, Options(grace_s=-60, bucket_bytes=20_000)).run(list(contract.TABLES)))
    in_bucket = {entry.path for entry in store.entries("v1")}
    assert in_bucket == {str(path.relative_to(local)) for path in local.rglob("*.*")}
    assert all("hour=" not in path for path in in_bucket)
    assert Fleet(store).query("cold").rows() == before


def test_a_put_succeeds_once(bucket: tuple[Store, Path]) -> None:
    store, _ = bucket
    path = contract.manifest_path("wss", START.date(), 1)
    assert store.put_if_absent(path, b"first")
    assert store.put_if_absent(path, b"first"), "an equal one counts as ours: its answer may have been lost"
    assert not store.put_if_absent(path, b"second")
    assert store.read(path) == b"first"


class Faults:
    """A proxy before the server that answers some requests with an error, or ends them without an answer."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.every, self.mode, self.count, self.failed = 0, "503", 0, 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def relay(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.count += 1
                is_failed = proxy.every > 0 and proxy.count % proxy.every == 0
                proxy.failed += is_failed
                if is_failed and proxy.mode == "503":
                    self.reply(503, {}, b"")
                    return
                status, headers, answer = proxy.ask(self.command, self.path, self.headers, body)
                if is_failed:
                    # The request was carried out, and the answer is lost: the client cannot know.
                    self.close_connection = True
                    return
                self.reply(status, headers, answer)

            def reply(self, status: int, headers: dict[str, str], answer: bytes) -> None:
                self.send_response(status)
                skipped = {"transfer-encoding", "connection", "content-length", "date", "server"}
                for key, value in headers.items():
                    if key.lower() not in skipped:
                        self.send_header(key, value)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = relay

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def ask(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        kept = {key: value for key, value in headers.items() if key.lower() not in ("connection", "content-length")}
        # urllib would call the body a form, and the server would take it apart.
        kept.setdefault("Content-Type", "application/octet-stream")
        request = urllib.request.Request(self.upstream + path, data=body or None, headers=kept, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()


@pytest.fixture
def faults(server: str) -> Iterator[Faults]:
    proxy = Faults(server)
    yield proxy
    proxy.server.shutdown()
    proxy.server.server_close()


@pytest.mark.parametrize("mode", ["503", "lost answer"])
def test_requests_that_fail_now_and_then_change_nothing(bucket: tuple[Store, Path], faults: Faults, mode: str) -> None:
    store, _ = bucket
    before = Fleet(store).query("cold").rows()
    faulty = open_store(store.url, options(faults.url))
    faults.mode, faults.every = mode, 7
    for _ in range(20):
        try:
            reports = list(Compactor(faulty, Options(grace_s=-60)).run(["idle", "wss", "hosts", "refaults"]))
        except FleetError:
            continue
        if not any(report.inputs or report.removed for report in reports):
            break
    else:
        pytest.fail("20 runs were not enough")
    assert faults.failed > 3
    assert Fleet(store).query("cold").rows() == before
    counted = {entry.path for table in ("idle", "wss") for entry in store.entries(f"v1/{table}")}
    assert all("hour=" not in path for path in counted)


def test_a_store_that_is_away_is_a_failure_that_says_so(bucket: tuple[Store, Path], faults: Faults) -> None:
    store, _ = bucket
    faults.every = 1
    config = options(faults.url) | {"config_kwargs": {"retries": {"max_attempts": 1}}}
    with pytest.raises(FleetError, match="list s3://fleet/"):
        Fleet(open_store(store.url, config)).query("wss")
    shutil.rmtree(bucket[1])
