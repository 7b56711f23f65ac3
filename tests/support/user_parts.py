"""A user's own loss, encoder and experiment, as files outside of the package."""

from pathlib import Path

USER_FILES = Path(__file__).parent / "user_files"
LOSS = f"{USER_FILES}/hinge_loss.py:Hinge"
ENCODER = f"{USER_FILES}/linear_encoder.py:Linear"
TASK = f"{USER_FILES}/mirrored_task.py:MIRRORED"


def written(folder: Path, name: str, change: tuple[str, str] = ("", "")) -> str:
    """A copy of a part's file elsewhere, perhaps changed; returns its name there."""
    file, _, part = name.rpartition(":")
    content = Path(file).read_text()
    assert change[0] in content
    copy = folder / Path(file).name
    copy.write_text(content.replace(*change) if change[0] else content)
    return f"{copy}:{part}"
