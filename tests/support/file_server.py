"""A server of files on this machine that can cut connections and refuse to resume."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from pcl.data.download import Remote

CONTENT = np.random.default_rng(0).bytes(1_500_000)


class FileServer(ThreadingHTTPServer):
    """Files by path; `cuts` says after how many bytes of a body each next answer stops."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/file.bin": CONTENT}
        self.has_range = True
        self.cuts: list[int] = []
        self.asked: list[str] = []

    def remote(self, name: str = "file.bin", digest: str = "", algorithm: str = "sha256") -> Remote:
        digest = digest or hashlib.new(algorithm, self.files[f"/{name}"]).hexdigest()
        return Remote(f"http://127.0.0.1:{self.server_address[1]}/{name}", name, algorithm, digest)


class Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append(wanted)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.has_range else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        self.wfile.write(rest[: self.server.cuts.pop(0)] if self.server.cuts else rest)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[FileServer]:
    """A server that runs."""
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
