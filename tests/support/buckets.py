"""A store that speaks S3, on this machine."""

import contextlib
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch.testbed.processes import DEADLINE_S, free_port, wait_for

# Secrets are the environment's, and nobody asks a cloud's machines for more.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "unknown", "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


@dataclass
class S3:
    """A server with buckets."""

    port: int

    def bucket(self) -> str:
        """The address of a folder in a new one."""
        name = f"b{uuid.uuid4().hex[:8]}"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=DEADLINE_S).close()
        return self.address(name)

    def address(self, bucket: str) -> str:
        return f"s3://{bucket}/some/runs?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{self.port}"


@contextlib.contextmanager
def s3_server(log: Path) -> Iterator[S3]:
    found = S3(free_port())
    with log.open("wb") as output:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(found.port)]
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: _answers(found.port) or process.poll() is not None, "the store answers")
        assert process.poll() is None, log.read_text()
        yield found
    finally:
        process.kill()
        process.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as found, pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield found


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=DEADLINE_S).close()
        return True
    return False
