"""The rounds of `bench.py chaos`, one after the other until the time is up, and their table."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from launch.benchmarks import Row
from launch.benchmarks.chaos import drawing
from launch.benchmarks.chaos.drawing import Round, draw
from launch.benchmarks.chaos.faults import FAULTS, judge_end, jump_of, last_line, moment_of, small_disk
from launch.benchmarks.chaos.place import Place, Service, make_database, slept, train_once
from launch.benchmarks.chaos.verdict import Findings, Verdict, rows_of, table
from launch.shared.command import say
from launch.testbed.clock import jump
from launch.testbed.nodes import stoppable
from launch.testbed.processes import DEADLINE_S, Started, wait_for
from pcl.presentation.durations import duration

_NO_STUDY = "There is no study"


def run_rounds(seed: int, limit_s: float, only: int | None = None) -> list[Row]:
    """Run the rounds of a seed for `limit_s` seconds, or only one; print each round and the table; return its rows."""
    judged: list[tuple[Round, Verdict]] = []
    began = time.monotonic()
    train_once()
    with _chaos() as chaos:
        say(f"chaos: seed {seed}, {f'round {only}' if only else duration(limit_s)}; studies in {chaos.folder}")
        try:
            for number in count(1) if only is None else [only]:
                each = draw(seed, number)
                verdict, is_late = chaos.run(each)
                if not is_late or not verdict.is_sound:
                    judged.append((each, verdict))
                spent = time.monotonic() - began
                eta = f"ETA {duration(max(0.0, limit_s - spent))}" if only is None else duration(spent)
                say(f"round {number}  {eta}  {each}: {'too late, ' if is_late else ''}{verdict}")
                if not verdict.is_sound:
                    say(f"  kept in {chaos.path_of(each)}; `bench.py chaos --seed {seed} --round {number}` replays it")
                if spent > limit_s:
                    break
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; nothing of it is running, and only failed rounds are kept") from None
        finally:
            rows = rows_of(judged)
            for line in table(rows):
                say(line)
    return rows


@contextmanager
def _chaos() -> Iterator["Chaos"]:
    """Make a folder for all rounds; those that failed stay in it."""
    with stoppable() as is_ending:
        folder = Path(tempfile.mkdtemp(prefix="pcl-", dir="/tmp"))  # short: Ray's sockets are in it
        try:
            chaos = Chaos(folder)
        except BaseException:
            is_ending()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            yield chaos
        finally:
            is_ending()
            chaos.end()


class Chaos:
    """Runner of rounds in a folder; undisturbed studies run when they are first needed for comparison."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._service = Service(folder / "mlflow")
        self._expected: dict[str, Findings] = {}
        self._usual_s: dict[tuple[str, bool], float] = {}  # by kind of study and whether on Ray
        began = time.monotonic()
        make_database(folder / "template")
        self._database_s = time.monotonic() - began

    def path_of(self, each: Round) -> Path:
        """Return the folder of a round."""
        return self.folder / str(each.number)

    def run(self, each: Round) -> tuple[Verdict, bool]:
        """Run a round; return the verdict, and whether the study had ended before the fault."""
        usual_s = self._undisturbed(each)
        database_s = self._database_s if each.is_first and not each.is_served else 0.0
        verdict = Verdict()
        with self._placed(each) as place, small_disk(place):
            self._copy_database(place)
            began = time.monotonic()
            is_late = not self._disturb(place, verdict, usual_s + database_s)
            # The machine is less busy than before; a study that makes its database says nothing about others.
            if is_late and not database_s and place.drivers[0].process.poll() == 0:
                self._usual_s[each.kind, each.is_ray] = min(usual_s, time.monotonic() - began)
            if not verdict.hung:
                self._mend(place, verdict)
            if not verdict.hung:
                self._judge(place, verdict)
            if verdict.hung:
                place.note_threads()
            else:
                verdict.left_over += place.left_over()
            place.end_all()
        if each.is_served:
            self._service.forget(place.study.name)
        if verdict.is_sound:
            place.remove()
        return verdict, is_late

    def end(self) -> None:
        """End all that runs, and remove all but the rounds that failed."""
        self._service.end()
        for name in ("mlflow", "template"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    @contextmanager
    def _placed(self, each: Round) -> Iterator[Place]:
        if each.is_served:
            self._service.start()
        place = Place(each, self.path_of(each), self._service, self._service.uri if each.is_served else "")
        try:
            yield place
        except KeyboardInterrupt:
            place.end_all()
            place.remove()
            raise
        finally:
            place.end_all()

    def _copy_database(self, place: Place) -> None:
        """Put MLflow's database into the storage, unless the study is the user's first."""
        if not place.round.is_first:
            shutil.copytree(self.folder / "template", place.storage, dirs_exist_ok=True)

    def _undisturbed(self, each: Round) -> float:
        """Return the seconds that an undisturbed study takes; its first run also sets the expected findings."""
        if (known := self._usual_s.get((each.kind, each.is_ray))) is not None:
            return known
        calm = replace(each, number=0, is_first=False, target="", fault="")
        with self._placed(calm) as place:
            self._copy_database(place)
            began = time.monotonic()
            place.begin().ended(timeout_s=2 * DEADLINE_S)
            usual_s = self._usual_s[each.kind, each.is_ray] = time.monotonic() - began
            verdict, found = Verdict(), place.findings()
            verdict.compare(found, self._expected.setdefault(each.kind, found))
            verdict.left_over += place.left_over()
            if not verdict.is_sound:
                raise AssertionError(f"an undisturbed study ({each.kind}, {place.path}) is not sound: {verdict}")
            place.remove()
        return usual_s

    def _disturb(self, place: Place, verdict: Verdict, usual_s: float) -> bool:
        """Start the study and cause the fault; return whether it happened before the end."""
        each, after_s = place.round, moment_of(place, usual_s)
        is_clock = each.fault == drawing.CLOCK
        driver = place.begin(partial(jump, after_s, jump_of(each.choice)) if is_clock else int)
        try:
            if each.is_ray and each.target not in (drawing.DRIVER, drawing.GROUP):
                wait_for(lambda: place.targets() or driver.process.poll() is not None, f"a {each.target}")
            is_running = slept(driver, after_s) or each.fault == drawing.DAMAGED
            has_happened = is_running and FAULTS[each.fault](place, verdict)
            driver.process.wait(DEADLINE_S)
        except (subprocess.TimeoutExpired, TimeoutError) as error:
            verdict.hung.append(f"the driver ({error}): {last_line(driver)}")
            return True
        except RuntimeError as error:
            verdict.wrong.append(str(error))
            return True
        judge_end(place, verdict, must_succeed=is_clock or not (has_happened or each.fault == drawing.DAMAGED))
        return has_happened

    def _mend(self, place: Place, verdict: Verdict) -> None:
        """Resume the study, as a user would."""
        each = place.round
        is_killed = each.fault == drawing.KILL and each.target != drawing.SERVER
        if is_killed or each.fault == drawing.DAMAGED:
            place.clear_temporary()
        if each.is_served:
            self._service.start()
        try:
            code, driver = self._ended(place.resume())
            if code == 2 and _NO_STUDY in driver.errors:
                code, driver = self._ended(place.begin())
        except subprocess.TimeoutExpired:
            verdict.hung.append("the resumed driver")
            return
        if code:
            verdict.wrong.append(f"resuming ended with {code}: {last_line(driver)}")

    def _ended(self, driver: Started) -> tuple[int, Started]:
        return driver.process.wait(DEADLINE_S), driver

    def _judge(self, place: Place, verdict: Verdict) -> None:
        try:
            code, problems, errors = place.verified()
            verdict.compare(place.findings(), self._expected[place.round.kind])
        except (subprocess.TimeoutExpired, RuntimeError) as error:
            verdict.wrong.append(f"cannot be judged: {error}")
            return
        told = [f"{problem['where']}: {problem['what']}" for problem in problems] or [errors]
        if code:
            verdict.wrong.append(f"verify says: {'; '.join(told)}")
