"""The line that says how far a training is."""

from types import SimpleNamespace

import pytest

from launch.shared.progress_line import Progress


def test_a_reader_who_leaves_ends_the_line_and_not_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def broken(line: str) -> None:
        told.append(line)
        raise BrokenPipeError

    monkeypatch.setattr("launch.shared.progress_line.say", broken)
    progress = Progress(lambda: 1, 2, lambda: "")
    monkeypatch.setattr(progress, "_is_done", SimpleNamespace(wait=lambda timeout: False))  # of a training without end
    progress._watch()
    assert told == ["1/2  ETA ?  "]
