"""Proxy that waits before every HTTP request: `python -m launch.testbed.proxy PORT TARGET_PORT SECONDS`."""

import base64
import http.client
import sys
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


def proxy(port: int, target: int, seconds: float, passwords: Sequence[str] = ()) -> ThreadingHTTPServer:
    """Return a server on loopback that forwards requests to another port, each after some seconds.

    If there are `passwords`, each USER:PASSWORD, a request must have one of them.
    """
    accepted = [f"Basic {base64.b64encode(password.encode()).decode()}" for password in passwords]

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            time.sleep(seconds)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if accepted and self.headers.get("Authorization") not in accepted:
                self.send_error(401)
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            connection = http.client.HTTPConnection("127.0.0.1", target, timeout=60)
            try:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            except OSError:
                self.send_error(502)
                return
            finally:
                connection.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _pass_on

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    proxy(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).serve_forever()
