"""Commands as users give them, in this process: a new one would take longer to import torch than most of them run."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

import pytest

from launch.shared.command import run as run_command
from launch.testbed.processes import ROOT


def called(program: str, main: Callable[[], None], *words: str) -> subprocess.CompletedProcess[str]:
    """What `python PROGRAM WORDS` says in the checkout, and how it ends."""
    out, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors),
        mock.patch.dict(os.environ)
    ):  # fmt: skip
        patch.chdir(ROOT)
        patch.setattr(sys, "argv", [program, *words])
        patch.setattr(sys, "__stdout__", out)  # where JSON goes
        with pytest.raises(SystemExit) as ended:
            run_command(main)
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess([program, *words], ended.value.code, out.getvalue(), errors.getvalue())
