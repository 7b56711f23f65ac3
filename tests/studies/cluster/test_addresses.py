"""Addresses of clusters that are none: told at once, where Ray would ask for minutes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from pcl.studies.cluster.jobs import Jobs
from pcl.studies.cluster.joining import check_address


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Someone on this machine who says the same to all; where."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(answer)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_port_that_is_another_services_is_refused_at_once() -> None:
    """The dashboard's for the cluster's, and the other way round: Ray would ask for minutes, or show the bytes."""
    with answering(b"HTTP/1.0 200 OK\r\n\r\n") as address, pytest.raises(ValueError, match="that is a web server"):
        check_address(address)
    with answering(b"\0\0\x18\4\0\0\0\0\0") as address:  # as a cluster's begins
        check_address(address)
        with pytest.raises(ValueError, match="what answers there is no web server"):
            Jobs(f"http://{address}")
    with answering(b"") as address:
        check_address(address)
