"""Parts of programs in interpreters that have loaded nothing else, which share the start of Python and of torch."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from launch.testbed.processes import DEADLINE_S, ROOT

# Forks for every part. Of each: how it ended, what it printed, the modules it has loaded, its processor time.
_FORKS = """
import contextlib, io, json, os, sys, time, traceback
exec(sys.argv[2])
for code in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if os.fork() == 0:
        started, printed, ended = time.process_time(), io.StringIO(), 0
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                exec(code, {"__name__": "part"})
            except SystemExit as end:
                ended = end.code
            except BaseException:
                ended = traceback.format_exc()
        seconds, names = time.process_time() - started, sorted(sys.modules)
        with open(writing, "w") as file:
            json.dump({"ended": ended, "out": printed.getvalue(), "modules": names, "seconds": seconds}, file)
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        print(file.read())
    os.wait()
"""


@dataclass(frozen=True)
class Fresh:
    """What a part of a program did: its exit code or traceback, output, loaded modules and processor time."""

    ended: int | str
    out: str
    modules: frozenset[str]
    seconds: float

    @property
    def packages(self) -> set[str]:
        return {name.split(".")[0] for name in self.modules}


def fresh(*parts: str, after: str = "", environment: Mapping[str, str] = {}) -> list[Fresh]:
    """Run each part alone.

    Args:
        parts: Code.
        after: Code that all of them begin after, such as an import that takes seconds.
        environment: Variables besides those of this process.
    """
    command = [sys.executable, "-W", "error", "-c", _FORKS, json.dumps(parts), after]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [Fresh(**{**one, "modules": frozenset(one["modules"])}) for one in found]
