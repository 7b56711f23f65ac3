"""A client of a Ray cluster's jobs over HTTP: submit, list, follow, stop."""

import http.client
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pcl.storage.credentials import shown_uri
from pcl.studies.cluster.joining import LEFT_BEHIND, use_token

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

T = TypeVar("T")

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
# Ray kills a job three seconds after it was asked to stop; a study needs longer to record its results.
_ENVIRONMENT = {"RAY_JOB_STOP_WAIT_TIME_S": "300"}
_PROBE_S = 5.0  # how long a user waits for an unreachable cluster
_AWAY_S = 120.0  # how long a cluster that has answered before may be unreachable


class Job(NamedTuple):
    """A job of a cluster."""

    name: str
    status: str  # PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED
    message: str  # the reason of the status, in one line
    command: str
    started_s: float  # time of its start, in seconds since 1970
    ended_s: float  # time of its end; 0 while it runs

    @property
    def has_ended(self) -> bool:
        """Return whether the job will not run any further."""
        return self.status in ENDED


class Jobs:
    """The jobs of the cluster whose dashboard has this address, such as http://127.0.0.1:8265.

    Raises:
        ValueError: If no cluster answers there, or it wants another token.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        _check_reachable(self.address)
        use_token()
        for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):  # they would override the address
            os.environ.pop(name, None)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._client: JobSubmissionClient = self._asked(self._connect)

    def submit(self, command: str, folder: Path, name: str, title: str) -> None:
        """Upload a folder and have a shell command started in it; `title` is the job's name in Ray's dashboard.

        Raises:
            ValueError: If the cluster has had a job of this name.
        """
        if any(job.name == name for job in self.all()):
            raise ValueError(f"There is a job {name!r} already; give this one another `--name`.")
        environment = {"working_dir": str(folder), "excludes": LEFT_BEHIND, "env_vars": _ENVIRONMENT}
        self._asked(
            lambda: self._client.submit_job(
                entrypoint=command, runtime_env=environment, submission_id=name, metadata={"job_name": title}
            )
        )

    def job(self, name: str) -> Job:
        """Return a job by its name; a ValueError says that there is none."""
        return _job(self._asked(lambda: self._client.get_job_info(name), name))

    def all(self) -> list[Job]:
        """Return all submitted jobs, the latest first."""
        found = [_job(info) for info in self._asked(self._client.list_jobs) if info.submission_id]
        return sorted(found, key=lambda job: -job.started_s)

    def log(self, name: str) -> str:
        """Return the whole log of a job."""
        return self._asked(lambda: self._client.get_job_logs(name), name)

    def stop(self, name: str) -> None:
        """Ask a job to stop, as Ctrl-C would."""
        self._asked(lambda: self._client.stop_job(name), name)

    def follow(self, name: str, write: Callable[[str], None], every_s: float = 1.0) -> Job:
        """Write a job's log as it grows until the job has ended; wait for a cluster that is unreachable for a while.

        Raises:
            ValueError: If it stays unreachable, or there is no such job.
        """
        n_written, answered = 0, time.monotonic()
        while True:
            try:
                job = self.job(name)  # before its log, which is complete if the job has ended
                said = self.log(name) if job.status != "PENDING" else ""
            except OSError:
                if time.monotonic() - answered > _AWAY_S:
                    raise
            else:
                answered = time.monotonic()
                write(said[n_written:])
                n_written = len(said)
                if job.has_ended:
                    return job
            time.sleep(every_s)

    def _connect(self) -> "JobSubmissionClient":
        from ray.job_submission import JobSubmissionClient  # noqa: PLC0415  reads the environment

        logging.getLogger("ray").setLevel(logging.ERROR)
        logging.getLogger("ray.dashboard.modules.dashboard_sdk").setLevel(logging.ERROR)
        return JobSubmissionClient(self.address)

    def _asked(self, ask: Callable[[], T], name: str = "") -> T:
        """Return an answer, or raise an error with a sentence instead of Ray's own details."""
        from ray.exceptions import AuthenticationError  # noqa: PLC0415  reads the environment that was set

        try:
            return ask()
        except AuthenticationError:
            raise ValueError(
                f"The cluster at {self.address} wants a token that is not here; `ray get-auth-token` on its head node "
                f"prints it: put it in a file, and the file's path in RAY_AUTH_TOKEN_PATH."
            ) from None
        except RuntimeError as error:
            lines = str(error).strip().splitlines()
            told = lines[-1] if "Traceback" in lines[0] else lines[0]
            if name and "404" in told:
                raise ValueError(f"There is no job {name!r} at {self.address}; `--list` shows all jobs.") from None
            raise ValueError(f"The cluster at {self.address} refused: {told}") from None
        except OSError as error:  # requests' errors are among them
            raise ConnectionError(f"The cluster at {self.address} does not answer: {type(error).__name__}.") from None


def _check_reachable(address: str) -> None:
    """Raise a ValueError unless an HTTP server answers: Ray's own client waits for ever."""
    shown = shown_uri(address)
    parts = urlsplit(shown)
    if parts.scheme not in ("http", "https") or not parts.hostname or shown != address:
        raise ValueError(f"`--address` must be a dashboard's, such as http://127.0.0.1:8265, but got {shown!r}.")
    try:
        urllib.request.urlopen(f"{address}/api/version", timeout=_PROBE_S).close()
    except urllib.error.HTTPError:
        return  # a server is there; the next request says what is wrong, if anything
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        if type(error) is http.client.BadStatusLine:  # whose text would be the received bytes
            cause = "what answers there is no web server"
        raise ValueError(f"No Ray dashboard can be reached at {address}: {cause}.") from None


def _job(info: Any) -> Job:
    message = (info.message or "").strip().partition(", last available logs")[0]
    return Job(
        info.submission_id, str(getattr(info.status, "value", info.status)), message.partition("\n")[0],
        info.entrypoint, (info.start_time or 0) / 1000, (info.end_time or 0) / 1000,
    )  # fmt: skip
