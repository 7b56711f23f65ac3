"""The board's server under any bytes: it answers each with a status, shows nothing but its own files, and lives on."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.board.server import BoardServer
from dashboards.board.site import Site
from dashboards.board.store.artifacts import Artifacts
from dashboards.board.store.mlflow_mirror import open_database
from launch.testbed.processes import DEADLINE_S
from tests.support.board_pages import Stored
from tests.support.board_process import served
from tests.support.properties import examples

SECRET = b"not for browsers"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n")
RUN = "0123456789abcdef" * 2
PLACES = [
    "index.html", "scoreboard.html", "compare.html", "board.css", "board.json", "study-", "data-", "image-", "winner-",
    "ablation-", ".html", ".js", ".png", RUN, "..", "/", "//", "%2e%2e", "%2f", "\\", "secret.txt", "mlflow.db", "~",
    "--", "%00", "?", "&", "=", "baseline=", "#", ":", "@", "http://", "[", "]", "*",
]  # fmt: skip
NAMES = [
    "Host",
    "If-None-Match",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Expect",
    "Range",
    "Accept-Encoding",
]
WORDS = [
    "localhost",
    "127.0.0.1",
    "[::1]",
    "rebound.example",
    "*",
    "chunked",
    "keep-alive",
    "close",
    "0",
    "-1",
    "9" * 30,
    "",
]
# Of a line of HTTP, as latin-1: control characters too, but no end of line
SIGNS = st.characters(max_codepoint=255, exclude_characters="\r\n")
PIECES = st.lists(st.sampled_from(PLACES) | st.text(SIGNS, max_size=5), max_size=6).map("".join)
HEADERS = st.lists(
    st.tuples(st.sampled_from(NAMES) | st.text(SIGNS, max_size=6), st.sampled_from(WORDS) | st.text(SIGNS, max_size=8)),
    max_size=5,
).map(lambda pairs: [f"{name}: {value}" for name, value in pairs])
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"])
VERSIONS = st.sampled_from(["HTTP/1.1"] * 4 + ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1.1", "HTTP/x", "", "ICY"])


def sent(method: str, path: str, version: str, headers: list[str], is_ours: bool, body: bytes) -> bytes:
    """A request, mostly with our own name, without which nothing is looked at."""
    lines = [f"{method} {path} {version}".rstrip(), *(["Host: localhost"] if is_ours else []), *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


REQUESTS = st.builds(
    sent, METHODS | st.just("GET") | st.text(SIGNS, max_size=4), PIECES.map("/".__add__) | PIECES, VERSIONS, HEADERS,
    st.sampled_from([True, True, True, False]), st.binary(max_size=30),
) | st.binary(max_size=60)  # fmt: skip


@pytest.fixture(scope="module")
def server(stored: Stored) -> Iterator[BoardServer]:
    (stored.folder / "secret.txt").write_bytes(SECRET)
    (stored.folder.parent / "secret.txt").write_bytes(SECRET)
    site = Site(open_database(stored.store), Artifacts(stored.store), lambda: "", lambda: "")
    with served(site, deadline_s=DEADLINE_S) as found:
        yield found


def answer_to(server: BoardServer, content: bytes) -> bytes:
    """All that the server says to some bytes, after which the client says no more."""
    address = server.server_address
    with socket.create_connection((str(address[0]), int(address[1])), timeout=DEADLINE_S) as connection:
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # it has been refused before it was read to its end
            pass
        parts = []
        while True:
            try:
                part = connection.recv(2**16)
            except ConnectionResetError:
                break
            if not part:
                break
            parts.append(part)
    return b"".join(parts)


@examples(75)
@given(content=REQUESTS)
def test_any_bytes_are_answered_with_a_status(
    server: BoardServer, capfd: pytest.CaptureFixture[str], content: bytes
) -> None:
    answer = answer_to(server, content)
    if content.decode("latin-1").partition("\n")[0].split():  # a blank line asks for nothing
        assert STATUS.match(answer), (content, answer[:200])
    for status in map(int, STATUS.findall(answer)):
        assert status < 500 or status in (501, 505), (content, answer[:500])
    assert SECRET not in answer
    assert b"SQLite format" not in answer
    assert b"[project]" not in answer
    assert capfd.readouterr().err == ""
    alive = answer_to(server, b"GET /board.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert alive.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.fixture(scope="module")
def known(stored: Stored) -> set[str]:
    return set(stored.site.names())


@examples(50)
@given(name=PIECES, query=st.dictionaries(st.sampled_from(["baseline", "page"]), PIECES, max_size=2))
def test_any_name_is_a_page_or_nothing(stored: Stored, known: set[str], name: str, query: dict[str, str]) -> None:
    assert (stored.site.get(name, query) is not None) == (name in known)


def test_no_file_beside_the_boards_is_shown(server: BoardServer, stored: Stored) -> None:
    for path in (stored.folder / "secret.txt", stored.folder / "mlflow.db", Path(__file__)):
        for name in (
            f"{path}",
            f"/{path}",
            f"static/../../..{path}",
            f"%2e%2e/{path.name}",
            f"..%2f{path.name}",
            path.name,
        ):
            request = f"GET /{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            assert answer_to(server, request.encode()).startswith(b"HTTP/1.1 404 "), name
