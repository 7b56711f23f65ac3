"""Visitors that the board's server has to survive: odd requests, slow ones, too many, and those that leave."""

import contextlib
import itertools
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator

import pytest

from dashboards.board.server import BoardServer
from launch.shared.ui_services import RayPages, found_board
from launch.testbed.processes import DEADLINE_S, wait_for
from tests.support.board_pages import Stored
from tests.support.board_process import served

LONG = "a" * 5000


def connected(server: BoardServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=DEADLINE_S)


def told(connection: socket.socket) -> bytes:
    """Everything until the server hangs up."""
    received = b""
    with contextlib.suppress(ConnectionResetError):  # where it did not read all
        while part := connection.recv(2**16):
            received += part
    return received


def status(server: BoardServer, request: bytes) -> int:
    """Send bytes; the board answers with a page in its own words and hangs up."""
    with connected(server) as connection:
        with contextlib.suppress(OSError):  # it may have heard enough
            connection.sendall(request)
        answer = told(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    code = int(head.split()[1])
    if code >= 400:
        assert re.findall(rb"<p>[^<]+\.</p>", body), answer
        assert b"Content-Security-Policy" in head
        assert b"Error" not in body
    return code


def of(path: str, *headers: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    lines = [f"{method} {path} {version}", "Host: localhost", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


RUN = "0123456789abcdef" * 2
REQUESTS = {
    "long name": (of(f"/{LONG}"), 404),
    "long page": (of(f"/{LONG}.html"), 404),
    "long study": (of(f"/study-{LONG}.html"), 404),
    "long segment": (of(f"/{LONG}/study-{RUN}.html"), 404),
    "long image": (of(f"/image-{RUN}-{LONG}.png"), 404),
    "long query": (of(f"/?{LONG}={LONG}"), 200),
    "long baseline": (of(f"/ablation-{RUN}.html?baseline={LONG}"), 404),
    "longest address": (of(f"/{'a' * 70_000}"), 414),
    "long header": (of("/", f"X-Long: {'a' * 70_000}"), 431),
    "many headers": (of("/", *(f"X-{n}: 1" for n in range(200))), 431),
    "large headers": (of("/", *(f"X-{n}: {'a' * 4000}" for n in range(60))), 431),
    "many fields": (of("/?" + "&".join(f"a{n}=1" for n in range(1000))), 400),
    "huge number": (of(f"/?page=1{'0' * 400}"), 200),
    "NUL": (of("/board.css\0"), 404),
    "encoded NUL": (of("/board.css%00"), 404),
    "encoded slash": (of("/..%2f..%2fpyproject.toml"), 404),
    "backslash": (of("/..\\board.css"), 404),
    "dots": (of("/.."), 404),
    "bad UTF-8": (of("/\xff\xfe?baseline=%ff"), 404),
    "bad percent": (of("/%zz?%"), 404),
    "control characters": (of("/\x1b[31mred"), 404),
    "no address": (of("http://[/"), 400),
    "whole address": (of("http://localhost/board.css"), 200),
    "two slashes": (of("//[/"), 404),
    "HEAD": (of("/nothing.html", method="HEAD"), 404),
    "unknown method": (of("/", method="BREW"), 501),
    "POST": (of("/", "Content-Length: 3", method="POST") + b"abc", 501),
    "other version": (of("/", version="HTTP/9.9"), 505),
    "no version": (of("/", version="HTTP/x"), 400),
    "no request": (b"\x16\x03\x01\x02\x00 \r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 403),
    "odd host": (b"GET / HTTP/1.1\r\nHost: \xff[::\r\nConnection: close\r\n\r\n", 403),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_odd_requests_are_answered_in_a_sentence(case: str, stored: Stored, capfd: pytest.CaptureFixture[str]) -> None:
    request, expected = REQUESTS[case]
    with served(stored.site) as server:
        if request.startswith(b"HEAD"):
            with connected(server) as connection:
                connection.sendall(request)
                assert told(connection).startswith(f"HTTP/1.1 {expected}".encode())
        else:
            assert status(server, request) == expected
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("header", [b"Content-Length", b"content-length"])
def test_a_body_is_not_taken_for_the_next_request(header: bytes, stored: Stored) -> None:
    body = b"GET /nothing.html HTTP/1.1\r\nHost: localhost\r\n\r\n"
    request = b"GET /board.css HTTP/1.1\r\nHost: localhost\r\n%s: %d\r\n\r\n" % (header, len(body))
    with served(stored.site) as server, connected(server) as connection:
        connection.sendall(request + body)
        assert told(connection).count(b"HTTP/1.1 ") == 1


def send_until_dropped(connection: socket.socket, parts: Iterable[bytes], pause_s: float = 0.0) -> None:
    with contextlib.suppress(ConnectionError):
        for part in parts:
            connection.sendall(part)
            time.sleep(pause_s)
        pytest.fail("it has taken all")


def test_whoever_sends_too_slowly_is_dropped(stored: Stored, capfd: pytest.CaptureFixture[str]) -> None:
    """Byte by byte: the deadline is that of the request as a whole."""
    with served(stored.site, deadline_s=1.0) as server, connected(server) as connection:
        send_until_dropped(connection, [bytes([byte]) for byte in of("/", f"X-Slow: {LONG * 10}")], pause_s=0.02)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("request_", [b"", b"GET /board.css HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_an_idle_connection_is_closed(request_: bytes, stored: Stored) -> None:
    with served(stored.site, deadline_s=10.0 if request_ else 1.0) as server, connected(server) as connection:
        connection.sendall(request_)
        assert told(connection).startswith(b"HTTP/1.1 200" if request_ else b"")


def test_whoever_does_not_read_is_dropped(stored: Stored, capfd: pytest.CaptureFixture[str]) -> None:
    """Answers that fill all buffers, none of which is taken; the thread is free afterwards."""
    with served(stored.site, deadline_s=3.0, n_connections=1) as server:
        with connected(server) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            request = b"GET /board.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
            send_until_dropped(connection, itertools.repeat(request * 100))
        wait_for(lambda: told_once(server) == b"200", "the next one is served")
    assert capfd.readouterr().err == ""


def told_once(server: BoardServer) -> bytes:
    """The status of an ordinary request, or nothing."""
    with contextlib.suppress(ConnectionError), connected(server) as connection:
        connection.sendall(of("/board.css"))
        return told(connection)[9:12]
    return b""


def test_too_many_visitors_are_turned_away(stored: Stored, capfd: pytest.CaptureFixture[str]) -> None:
    with served(stored.site, n_connections=2) as server:
        with connected(server) as first, connected(server) as second:
            for connection in (first, second):
                connection.sendall(b"GET /board.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
            with connected(server) as third:
                assert b"503" in third.recv(2**16).split(b"\r\n")[0]
        wait_for(lambda: told_once(server) == b"200", "a place is free")
    assert capfd.readouterr().err == ""


def test_whoever_leaves_early_leaves_no_trace(stored: Stored, capfd: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with served(stored.site) as server:
        for sent in (b"", b"GET", of("/"), of("/board.js") * 50):
            with connected(server) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not an end
                connection.sendall(sent)
        wait_for(lambda: threading.active_count() <= before + 2, "all threads are free")  # the server's, and a page's
    assert capfd.readouterr().err == ""


@contextlib.contextmanager
def answering(content: bytes) -> Iterator[str]:
    """A service that does not speak HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(content)
                        connection.recv(2**16)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("content", [b"SSH-2.0-x\r\n", b"\0\xff", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"])
def test_another_service_at_the_port_is_no_board_and_no_dashboard(content: bytes) -> None:
    with answering(content) as address:
        host, _, port = address.partition(":")
        assert found_board(host, int(port)) == ""
        ray = RayPages(f"http://{address}")
        ray.look()
        assert ray.address() == ""
