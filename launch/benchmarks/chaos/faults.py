"""The faults: each disturbs a running study and is over when it returns, except for what a killed process leaves."""

import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.benchmarks.chaos import drawing
from launch.benchmarks.chaos.place import Place, slept
from launch.benchmarks.chaos.verdict import Verdict
from launch.testbed.processes import DEADLINE_S, Started, signal_all, wait_for
from pcl.studies.verification.problem import Remedy

Fault = Callable[[Place, Verdict], bool]  # returns whether it happened before the study had ended

_LIFETIME = {drawing.WORKER: 0.25, drawing.RAYLET: 0.6, drawing.GCS: 0.7}  # shares of a study's time
_DISK = "48m"  # size of the disk that is filled
_FILES = (
    "study.json", "objective.json", "trial.json", "reports.json", "result.json", "checkpoint.pt", "owner",
    "summary.json", "trials.csv", "best.yaml", "mlflow.db",
)  # fmt: skip
_LONGEST_JUMP_S = 365 * 86400.0


def jump_of(choice: float) -> float:
    """Return the seconds by which a clock jumps: a minute to a year, back or forth."""
    size = 60.0 * float((_LONGEST_JUMP_S / 60.0) ** abs(2 * choice - 1))
    return -size if choice < 0.5 else size


def send_signal(place: Place, verdict: Verdict) -> bool:
    """Send a signal; a stopped process continues after a while, and a killed MLflow server is restarted."""
    each, driver = place.round, place.drivers[0]
    if each.target in _LIFETIME:
        wait_for(lambda: place.targets() or driver.process.poll() is not None, f"a {each.target}")
    pids = place.targets()
    number = signal.Signals[f"SIG{each.fault}"]
    if not pids or driver.process.poll() is not None:
        return False
    if each.target == drawing.GROUP:
        os.killpg(driver.process.pid, number)
    else:
        signal_all(pids, number)
    if number is signal.SIGSTOP:
        time.sleep(each.pause_s)
        signal_all(pids, signal.SIGCONT)
    elif each.target == drawing.SERVER:
        _wait_out(place, verdict)
        place.service.restart()
    return True


def start_second(place: Place, verdict: Verdict) -> bool:
    """Start another driver of the same study; it must find one at work, or that all is done."""
    second = place.resume() if (place.study.path / "study.json").exists() else place.begin()
    code = second.process.wait(DEADLINE_S)
    if code not in (0, 2) or "Traceback" in second.errors:
        verdict.wrong.append(f"a second driver ended with {code}: {last_line(second)}")
    if place.drivers[0].process.wait(DEADLINE_S) not in (0, 2):
        verdict.wrong.append(f"the first driver was disturbed by a second: {last_line(place.drivers[0])}")
    return True


def lock_database(place: Place, verdict: Verdict) -> bool:
    """Lock MLflow's database as another writer does."""
    path, driver = place.storage / "mlflow.db", place.drivers[0]
    wait_for(lambda: path.exists() or driver.process.poll() is not None, "a database")
    if driver.process.poll() is not None:
        return False
    with contextlib.closing(sqlite3.connect(path, DEADLINE_S, isolation_level=None)) as connection:
        connection.execute("begin exclusive")
        slept(driver, 5 * place.round.pause_s)
        connection.execute("rollback")
    return True


def fill_disk(place: Place, verdict: Verdict) -> bool:
    """Fill the disk of the storage, until the driver has ended or for a while."""
    driver = place.drivers[0]
    filler, free = place.storage / "filler", resource.RLIM_INFINITY
    if driver.process.poll() is not None:
        return False
    if os.path.ismount(place.storage):
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    else:  # where mounting a small disk is not allowed: files that cannot grow
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(driver.process.pid, resource.RLIMIT_FSIZE, (0, free))
    _wait_out(place, verdict)
    filler.unlink(missing_ok=True)
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(driver.process.pid, resource.RLIMIT_FSIZE, (free, free))
    return True


@contextmanager
def small_disk(place: Place) -> Iterator[None]:
    """Mount a small disk as the storage if the fault needs it and mounting is allowed."""
    if place.round.fault != drawing.FULL:
        yield
        return
    options = ["-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(place.storage)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        yield
        return
    try:
        yield
        kept = place.path / "kept"
        shutil.copytree(place.storage, kept)
    finally:
        subprocess.run(["umount", "-l", str(place.storage)], check=True)
    place.storage.rmdir()
    kept.rename(place.storage)


def answer_500(place: Place, verdict: Verdict) -> bool:
    """Make MLflow answer 500 to everything, for a while or until the driver has ended."""
    if place.drivers[0].process.poll() is not None:
        return False
    place.service.failing.touch()
    _wait_out(place, verdict)
    place.service.failing.unlink()
    return True


def damage_file(place: Place, verdict: Verdict) -> bool:
    """Kill the driver and damage a file; `verify.py` must name damage that resuming leaves; apply its remedies."""
    place.drivers[0].process.kill()
    place.drivers[0].process.wait(DEADLINE_S)
    if not (place.study.path / "study.json").exists():
        return False
    chosen = _chosen(place)
    content = chosen.read_bytes()
    how = _damage(chosen, content, place.round.choice)
    (place.path / "damage.txt").write_text(f"{chosen}: {how}\n")
    code, problems, errors = place.verified()
    if code not in (0, 1, 2) or (code == 1 and not problems):
        verdict.wrong.append(f"{chosen.name} was {how}, and verify.py ended with {code}: {errors}")
    if code == 2:  # an error: the study cannot even be verified
        _restore(chosen, content)
        if chosen.name not in errors:
            verdict.wrong.append(f"{chosen.name} was {how}, but is not named: {errors}")
    for problem in problems:
        _apply(place, Remedy[problem["remedy"].upper()], problem["where"])
    return True


def _chosen(place: Place) -> Path:
    """Return the file to damage: the drawn one, or the next that exists."""
    files = _FILES if place.round.kind != "search" else tuple(name for name in _FILES if name != "trial.json")
    start = int(place.round.choice * 1000) % len(files)
    for name in [*files[start:], *files[:start]]:
        found = sorted([*place.study.path.rglob(name), *place.storage.glob(name)])
        if found:
            return found[int(place.round.choice * 1e6) % len(found)]
    raise AssertionError("a study has a study.json")


def _damage(path: Path, content: bytes, choice: float) -> str:
    half = len(content) // 2
    flipped = bytearray(content)
    if flipped:
        flipped[half] ^= 1
    # A flipped bit can turn text into other valid text, such as another digit: only checkpoints have digests.
    damages: dict[str, bytes | None] = {
        "cut": content[:half], "emptied": b"", "filled with zeros": content[:half] + bytes(len(content) - half),
        "deleted": None, **({"flipped": bytes(flipped)} if path.suffix == ".pt" else {}),
    }  # fmt: skip
    how = list(damages)[int(choice * 1e5) % len(damages)]
    new = damages[how]
    if new is None:
        path.unlink()
    else:
        path.write_bytes(new)
    return how


def _restore(path: Path, content: bytes) -> None:
    """Restore a file; MLflow's database is deleted instead, as the study has all that is in it."""
    if path.name == "mlflow.db":
        path.unlink(missing_ok=True)
        for end in ("-journal", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def _apply(place: Place, remedy: Remedy, where: str) -> None:
    """Apply a remedy."""
    if remedy is Remedy.RETRAIN:
        trials = place.study.path / "trials"
        shutil.rmtree(trials / Path(where).relative_to(trials).parts[0], ignore_errors=True)
    elif remedy is Remedy.DELETE:
        Path(where).unlink(missing_ok=True)
    elif remedy in (Remedy.RERECORD, Remedy.ORPHAN):
        with contextlib.closing(sqlite3.connect(place.storage / "mlflow.db")) as connection, connection:
            connection.execute("update runs set lifecycle_stage = 'deleted' where run_uuid = ?", (where.split()[2],))


def _wait_out(place: Place, verdict: Verdict) -> None:
    """Wait for the drawn pause or, in half of the rounds, for the driver, which must end during the fault."""
    each, driver = place.round, place.drivers[0]
    if each.choice < 0.5:
        slept(driver, each.pause_s)
    elif slept(driver, DEADLINE_S):
        verdict.hung.append(f"the driver, as long as the fault lasted: {last_line(driver)}")


def nothing(place: Place, verdict: Verdict) -> bool:
    """Do nothing: the fault, such as a clock jump, was set up at the start."""
    return True


def judge_end(place: Place, verdict: Verdict, *, must_succeed: bool) -> None:
    """Judge how the first driver ended: never with a traceback, and with 0 if nothing kept it from its work."""
    driver = place.drivers[0]
    code, errors = driver.process.returncode, driver.errors
    # Python itself prints a traceback if Ctrl-C comes before the command's first line.
    is_python = place.round.fault == drawing.INTERRUPT and "KeyboardInterrupt" in errors and not driver.said
    if "(unexpected" in errors or ("Traceback" in errors and not is_python) or (must_succeed and code):
        verdict.wrong.append(f"the driver ended with {code}: {last_line(driver)}")


def last_line(driver: Started) -> str:
    """Return the last line of a command's errors, or else of its output."""
    return ((driver.errors.strip() or driver.said.strip()).splitlines() or ["nothing was said"])[-1]


def moment_of(place: Place, usual_s: float) -> float:
    """Return the seconds from the driver's start, or from its target's, to the fault."""
    return place.round.moment * _LIFETIME.get(place.round.target, 1.0) * usual_s


FAULTS: dict[str, Fault] = {
    **dict.fromkeys((drawing.KILL, drawing.TERM, drawing.INTERRUPT, drawing.STOP), send_signal),
    drawing.SECOND: start_second, drawing.LOCKED: lock_database, drawing.FULL: fill_disk,
    drawing.DAMAGED: damage_file, drawing.FAILING: answer_500, drawing.CLOCK: nothing,
}  # fmt: skip
