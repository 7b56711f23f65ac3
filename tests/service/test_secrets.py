"""Passwords, keys and tokens of a live study are in nothing that is written, shown or listed."""

import base64
import os
import re
import signal
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from urllib.parse import urljoin

import pytest

from launch.grid import main as grid
from launch.testbed.processes import DEADLINE_S, started
from launch.testbed.proxy import proxy
from tests.support.commands import called
from tests.support.services import (
    GRID,
    INLINE,
    LONG,
    ONE_WORKER,
    Home,
    Server,
    check_records,
    free_port,
    go_on,
    wait_for,
)

EXPECTED_SECONDS = 110

# Of the address, in two halves around an @; of the environment; Ray's; of a store.
FIRST, SECOND, VARIABLE, TOKEN, KEY = (token_hex(32) for _ in range(5))
PASSWORD = f"{FIRST}@{SECOND}"
SECRETS = {
    text.encode()
    for text in (
        FIRST, SECOND, VARIABLE, TOKEN, KEY,
        *(base64.b64encode(f"me:{password}".encode()).decode() for password in (PASSWORD, VARIABLE)),
    )
}  # fmt: skip
# As the destructors of Ray's C++ code may: the study's command ends all the same.
HANGS_AT_THE_END = """
import ctypes, sys
if "launch/grid.py" in sys.orig_argv:
    getattr(ctypes.CDLL(None), "__cxa_atexit")(ctypes.CDLL(None).pause, None, None)
"""


def told_in(files: Iterable[Path]) -> list[str]:
    """Files, also of databases and of processes, that have a secret in them."""
    found = []
    for file in files:
        try:
            content = file.read_bytes()
        except OSError:  # a process that has ended, or a socket
            continue
        found += [
            f"{file}: {content[max(0, at - 200) : at + 100]!r}"
            for secret in SECRETS
            if (at := content.find(secret)) >= 0
        ]
    return found


@contextmanager
def guarded(target: int) -> Iterator[int]:
    """A port that passes on requests with a password alone."""
    port = free_port()
    with proxy(port, target, 0.0, [f"me:{PASSWORD}", f"me:{VARIABLE}"]) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield port
        finally:
            server.shutdown()


def pages(address: str, most: int = 30) -> Iterator[bytes]:
    """Pages of a board, and what they lead to on it, with the answers' headers."""
    left, seen = [address], {address}
    while left and len(seen) < most:
        with urllib.request.urlopen(left.pop(0), timeout=DEADLINE_S) as answer:
            content = answer.read()
            yield answer.headers.as_bytes() + content
        for link in re.findall(rb'(?:href|src)="([^"#]*)', content):
            found = urljoin(address, link.decode())
            if found.startswith(address) and found not in seen:
                seen.add(found)
                left.append(found)


@pytest.mark.slow
def test_secrets_are_nowhere(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(place.path)
    server.start()
    try:
        with guarded(server.port) as port:
            address = f"http://me:{PASSWORD}@127.0.0.1:{port}"
            (place.path / "sitecustomize.py").write_text(HANGS_AT_THE_END)
            environment = {
                **os.environ, "RAY_TMPDIR": str(place.path), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN,
                "MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": VARIABLE, "AWS_SECRET_ACCESS_KEY": KEY,
                "PYTHONPATH": str(place.path),
            }  # fmt: skip
            space = place.space("long", GRID, LONG)
            words = ["--space", space, "--scale", "smoke", "--name", "s", *ONE_WORKER]
            options = [*words, "--storage", place.storage, "--tracking-uri", address]
            study = started([sys.executable, "launch/grid.py", *options], place.path / "study.out", environment)
            place.drivers.append(study)
            workers = place.hold_at("s", 3)
            assert not told_in(Path("/proc").glob("[0-9]*/cmdline"))
            go_on(workers)
            study.ended()
            check_records(place.study("s"), server.uri)
            for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
                monkeypatch.setenv(name, environment[name])
            monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
            place.run("--resume", "s", *INLINE)
            place.run("--export", place.path / "board", script="launch/board.py")
            place.run("s", script="launch/verify.py")
            board = place.start("--port", str(shown := free_port()), "--mlflow-port", "0", script="launch/board.py")
            wait_for(lambda: "Ctrl-C" in board.said or board.process.poll() is not None, "the board is up")
            found = list(pages(f"http://127.0.0.1:{shown}/"))
            assert len(found) > 5
            (place.path / "pages").write_bytes(b"".join(found))
            board.process.send_signal(signal.SIGINT)
            board.ended(130)
        monkeypatch.setenv("PCL_TRACEBACK", "1")
        away = called("launch/grid.py", grid, "--resume", "s", *INLINE, "--storage", str(place.storage))
        assert away.returncode == 2
        (place.path / "away.out").write_text(away.stdout + away.stderr)
    finally:
        server.kill()
    files = [file for file in place.path.rglob("*") if file.is_file()]
    parts = {file.relative_to(place.path).parts[0] for file in files}
    assert {"ray", "runs", "board", "server.db", "pages", "study.out", "study.err"} <= parts, parts
    assert len(files) > 50
    assert not told_in(files)
