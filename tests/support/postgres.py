"""A PostgreSQL server in a folder of its own, on loopback, that tests start, kill and start again."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from launch.testbed.processes import DEADLINE_S, free_port

_DEBIAN = Path("/usr/lib/postgresql")  # where versions have folders of their own, none of which is on the PATH
_OWNER = "postgres"  # the server refuses to run as root
USER = "mlflow"
PASSWORD = "a word: with/signs@in it"  # clients take it from the variable PGPASSWORD


def missing() -> str:
    """Return what a test with PostgreSQL lacks here, or nothing."""
    if _binaries() is None:
        return "PostgreSQL is not installed"
    if find_spec("psycopg2") is None:
        return "psycopg2, MLflow's driver for PostgreSQL, is not installed"
    if _owner() is None:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


def _binaries() -> Path | None:
    if found := shutil.which("initdb"):
        return Path(found).parent
    return next((path.parent for path in sorted(_DEBIAN.glob("*/bin/initdb"), reverse=True)), None)


def _owner() -> pwd.struct_passwd | None:
    """Return who runs the server: this user, unless that is root."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(_OWNER) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    return None


@dataclass
class Postgres:
    """A server that asks for a password."""

    folder: Path
    port: int

    @property
    def address(self) -> str:
        """Host, port and database."""
        return f"127.0.0.1:{self.port}/postgres"

    @property
    def uri(self) -> str:
        # SQLAlchemy 2.1 takes psycopg where no driver is named.
        return f"postgresql+psycopg2://{USER}@{self.address}"

    def start(self) -> None:
        """Start it; return when it takes connections, after a kill once it has recovered."""
        # Without fsync, what is committed survives the server's end, not the machine's.
        options = f"-F -c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories="
        self._call("pg_ctl", "start", "-w", "-t", f"{DEADLINE_S:.0f}", "-l", str(self.folder / "log"), "-o", options)

    def kill(self) -> None:
        """End it at once, in the middle of what it does."""
        self._call("pg_ctl", "stop", "-m", "immediate")

    def create(self) -> None:
        """Make the empty database."""
        word = self.folder / "password"
        word.write_text(PASSWORD)
        self._call(
            "initdb", "-N", "-A", "scram-sha-256", "--pwfile", str(word), "-U", USER, "-E", "UTF8", "--no-locale"
        )

    def _call(self, program: str, *words: str) -> None:
        binaries, owner = _binaries(), _owner()
        assert binaries
        assert owner
        who = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        with (self.folder / "called").open("ab") as said:  # no pipe: the server would keep it open
            subprocess.run(
                [binaries / program, "-D", self.folder / "data", *words], check=True, timeout=DEADLINE_S,
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, **who,
            )  # type: ignore[call-overload]  # fmt: skip


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A new one, started; nothing of it is left."""
    folder, owner = Path(tempfile.mkdtemp(prefix="pcl-pg-", dir="/tmp")), _owner()
    assert owner
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    found = Postgres(folder, free_port())
    try:
        found.create()
        found.start()
        yield found
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            found.kill()
        shutil.rmtree(folder)
