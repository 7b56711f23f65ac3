"""Proxy that fails on demand: `python -m launch.testbed.failing_proxy PORT TARGET_PORT FILE`.

While the file exists, every request is answered with 500.
"""

import sys
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from launch.testbed.proxy import proxy


def failing_proxy(port: int, target: int, failing: Path) -> ThreadingHTTPServer:
    """Return a server on loopback that forwards requests to another port, except while the file `failing` exists."""
    server = proxy(port, target, 0.0)
    passing: Any = server.RequestHandlerClass

    class Handler(passing):  # type: ignore[misc]
        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            if failing.exists():
                self.send_error(500)
                return False
            return True

    server.RequestHandlerClass = Handler
    return server


if __name__ == "__main__":
    failing_proxy(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])).serve_forever()
