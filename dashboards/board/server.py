"""The board's HTTP server, for the browsers of this machine."""

import contextlib
import hashlib
import io
import ipaddress
import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dashboards.board.html.frame import POLICY, PageContext, page
from dashboards.board.site import File, Site
from pcl.presentation.markup import tag
from pcl.studies.tracking.database_file import StoreError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = {
    "Content-Security-Policy": POLICY.format("'self'") + "; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",  # no other page may load the data as a script
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_LARGEST_REQUEST = 2**17  # bytes of its line and headers; the line alone may have half of it
_MOST_FIELDS = 50  # of a query
_REFUSALS = {
    HTTPStatus.REQUEST_URI_TOO_LONG: "This address is too long to be one of the board's.",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The headers of this request are too large.",
    HTTPStatus.NOT_IMPLEMENTED: "The board can only be read: it answers GET and HEAD.",
}
_BUSY = b"The board has too many visitors at once: try again in a minute.\n"
_BUSY_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BUSY), _BUSY)
)


class BoardServer(ThreadingHTTPServer):
    """An HTTP server of a site.

    Args:
        site: What is served.
        host: Address to listen at.
        port: 0 for any that is free; one that is taken raises an OSError.
        store: Store that it shows, so that other processes can find the board of a store.
        deadline_s: Seconds within which a whole request must arrive, and then its answer be taken.
        n_connections: Connections open at once, each with a thread; others are turned away.
    """

    daemon_threads = True

    def __init__(
        self, site: Site, host: str, port: int, store: str, *, deadline_s: float = 30.0, n_connections: int = 128
    ) -> None:
        self.site, self.store, self.deadline_s = site, store, deadline_s
        self._free = threading.Semaphore(n_connections)
        super().__init__((host, port), _Handler)
        self._is_open = not is_loopback(host)
        self._names = {*LOOPBACK, host, *({socket.gethostname(), socket.getfqdn()} if self._is_open else ())}

    def answers_to(self, header: str) -> bool:
        """Return whether a Host header names this server.

        Otherwise a foreign page could make its own name lead here (DNS rebinding) and read everything. Such a name is
        not an IP address: on a server that others can reach, any IP address is as good as a known name.
        """
        try:
            host = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        return host in self._names or (self._is_open and _is_number(host))

    @property
    def address(self) -> str:
        """Return the address to open."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or turn it away where there are too many."""
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread could be started
                self._free.release()
                raise
            return
        with contextlib.suppress(OSError):
            request.setblocking(False)  # the next connection does not wait for this one
            request.send(_BUSY_ANSWER)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error in a line; a client that has gone is not an error."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"board: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class _Requests(io.RawIOBase):
    """A client's requests, each with a deadline and a largest size."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.begin(0.0)

    def begin(self, deadline_s: float) -> None:
        """Wait for a new request."""
        self._deadline, self._left = time.monotonic() + deadline_s, _LARGEST_REQUEST

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if self._left <= 0:
            raise HTTPException("The headers are too large.")
        self._connection.settimeout(left_s)
        n_read = self._connection.recv_into(buffer)
        self._left -= n_read
        return n_read


class _Handler(BaseHTTPRequestHandler):
    server: BoardServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._requests = _Requests(self.connection)
        self.rfile = io.BufferedReader(self._requests)

    def handle_one_request(self) -> None:
        self._requests.begin(self.server.deadline_s)
        super().handle_one_request()

    def do_GET(self) -> None:
        if self.request_version == "HTTP/0.9":  # whose answers have no status
            self.send_error(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
            return
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what follows is not a request
        if not self.server.answers_to(self.headers.get("Host", "")):
            self._send(HTTPStatus.FORBIDDEN, _told("This name is not the board's: open it by its own address."))
            return
        try:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, max_num_fields=_MOST_FIELDS))
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        self._send(*self._answer(parts.path.lstrip("/") or "index.html", query))

    def _answer(self, name: str, query: Mapping[str, str]) -> tuple[HTTPStatus, File]:
        if name == "board.json":
            body = json.dumps({"board": "pcl", "store": self.server.store}).encode()
            return HTTPStatus.OK, File(body, "application/json")
        try:
            file = self.server.site.get(name, query)
        except StoreError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, _told(str(error))
        except Exception as error:  # one page that fails must not end the board
            print(f"board: {name[:100]!r}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _told(f"This page could not be made: {type(error).__name__}.")
        return (HTTPStatus.NOT_FOUND, _told("There is no such page.")) if file is None else (HTTPStatus.OK, file)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: every open page checks for updates every few seconds."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request with a page and close: after a request that cannot be parsed, the next cannot be found."""
        self.close_connection = True
        self.request_version = self.protocol_version  # else no headers would be sent
        status = HTTPStatus(code)
        self._send(status, _told(_REFUSALS.get(status, "This request was not understood.")))

    def _send(self, status: HTTPStatus, file: File) -> None:
        self.connection.settimeout(self.server.deadline_s)
        mark = f'"{hashlib.sha256(file.body).hexdigest()[:20]}"'
        is_known = status is HTTPStatus.OK and self.headers.get("If-None-Match") == mark
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("ETag", mark)
        if not is_known:
            self.send_header("Content-Type", file.kind)
            self.send_header("Content-Length", str(len(file.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if not is_known and self.command != "HEAD":
            self.wfile.write(file.body)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    return ipaddress.ip_address(host).is_loopback if _is_number(host) else host == "localhost"


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _told(text: str) -> File:
    body = page("Not here", [tag("h1", "Not here"), tag("p", text)], PageContext(is_live=False))
    return File(body.encode(), "text/html; charset=utf-8")
