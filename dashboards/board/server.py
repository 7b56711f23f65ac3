"""The board over HTTP, for the browsers of this machine."""

import hashlib
import ipaddress
import json
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from dashboards.board.database import StoreError
from dashboards.board.frame import POLICY, Surroundings, page
from dashboards.board.markup import tag
from dashboards.board.site import File, Site

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = {
    "Content-Security-Policy": POLICY.format("'self'") + "; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",  # no other page may load the data as a script
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class BoardServer(ThreadingHTTPServer):
    """Serves a site.

    Args:
        site: What is served.
        host: Address to listen at.
        port: Port; 0 for any that is free.
        store: What it shows, so that others can find the board of a store.

    Raises:
        OSError: If the port is taken.
    """

    daemon_threads = True

    def __init__(self, site: Site, host: str, port: int, store: str) -> None:
        self.site, self.store = site, store
        super().__init__((host, port), _Handler)
        self._is_open = not is_loopback(host)
        self._names = {*LOOPBACK, host, *({socket.gethostname(), socket.getfqdn()} if self._is_open else ())}

    def answers_to(self, header: str) -> bool:
        """Whether a Host header is one of ours.

        A page of elsewhere whose name was made to lead here (DNS rebinding) would read all. Such a name is no number:
        where others may come, numbers are as good as names that are known.
        """
        try:
            host = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        return host in self._names or (self._is_open and _is_number(host))

    @property
    def address(self) -> str:
        """What to open."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"


class _Handler(BaseHTTPRequestHandler):
    server: BoardServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if not self.server.answers_to(self.headers.get("Host", "")):
            self._send(HTTPStatus.FORBIDDEN, _told("This name is not the board's: open it by its own address."))
            return
        parts = urlsplit(self.path)
        name = parts.path.lstrip("/") or "index.html"
        if name == "board.json":
            body = json.dumps({"board": "pcl", "store": self.server.store}).encode()
            self._send(HTTPStatus.OK, File(body, "application/json"))
            return
        try:
            file = self.server.site.get(name, dict(parse_qsl(parts.query)))
        except StoreError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, _told(str(error)))
            return
        except Exception as error:  # one page that fails must not end the board
            print(f"board: {name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _told(f"This page could not be made: {type(error).__name__}."))
            return
        if file is None:
            self._send(HTTPStatus.NOT_FOUND, _told("There is no such page."))
            return
        self._send(HTTPStatus.OK, file)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: every open page asks for news every few seconds."""

    def _send(self, status: HTTPStatus, file: File) -> None:
        mark = f'"{hashlib.sha256(file.body).hexdigest()[:20]}"'
        is_known = status is HTTPStatus.OK and self.headers.get("If-None-Match") == mark
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("ETag", mark)
        if not is_known:
            self.send_header("Content-Type", file.kind)
            self.send_header("Content-Length", str(len(file.body)))
        self.end_headers()
        if not is_known and self.command != "HEAD":
            self.wfile.write(file.body)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return ipaddress.ip_address(host).is_loopback if _is_number(host) else host == "localhost"


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _told(text: str) -> File:
    body = page("Not here", [tag("h1", "Not here"), tag("p", text)], Surroundings(is_live=False))
    return File(body.encode(), "text/html; charset=utf-8")
