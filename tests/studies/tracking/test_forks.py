import os
import subprocess
import sys

from launch.testbed.processes import ROOT

# Solves linear systems in a thread while the main one forks. OpenBLAS with threads of its own ends none of them.
BESIDE_FORKS = """
import os, subprocess, threading, time
import numpy as np
from pcl.studies.report.plan import survive_forks

survive_forks()
done = []

def solve() -> None:
    while True:
        done.append(np.linalg.solve(np.eye(260), np.ones((260, 400))))

threading.Thread(target=solve, daemon=True).start()
ended = time.monotonic() + 60
while len(done) < 20 and time.monotonic() < ended:
    subprocess.run(["true"], preexec_fn=os.getpid)
os._exit(len(done) < 20)
"""


def test_numbers_are_computed_beside_forks() -> None:
    threaded = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    found = subprocess.run([sys.executable, "-c", BESIDE_FORKS], cwd=ROOT, check=False, env=threaded)
    assert found.returncode == 0
