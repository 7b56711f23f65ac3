"""Export of the board as files, which need neither a server nor a network."""

import re
from pathlib import Path

from dashboards.board.site import Site
from pcl.storage.files import replacing

_RUN = "[0-9a-f]{32}"  # a run's name in MLflow
_OURS = re.compile(
    rf"(index|scoreboard|compare)\.html|(study|ablation|winner)-{_RUN}\.html|parameters-{_RUN}(-[\w.-]+)?\.html|(data|curves)-{_RUN}\.js|image-{_RUN}-[\w.-]+\.png"
    r"|board\.(css|js)|(compare|charts|curves)\.js|icon\.svg"
)


def check_folder(folder: Path) -> None:
    """Raise a ValueError unless a folder is one to export to: missing, empty, or with only an earlier export."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`--export` must name a folder, but {folder} is a file.")
    inside = list(folder.iterdir()) if folder.exists() else []
    others = [path.name for path in inside if not _OURS.fullmatch(path.name) or path.is_dir()]
    if others:
        raise ValueError(
            f"`--export` must name a new folder or an earlier export, but {folder} has {sorted(others)[0]!r}."
        )


def export(site: Site, folder: Path) -> list[Path]:
    """Write every file, and delete what an earlier export left.

    Raises:
        ValueError: If the folder has other files.
        StoreError: If the store cannot be read.
    """
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in site.names():
        file = site.get(name)
        if file is None:
            continue  # deleted meanwhile
        with replacing(folder / name) as unfinished:
            unfinished.write_bytes(file.body)
        written.append(folder / name)
    for path in set(folder.iterdir()) - set(written):
        path.unlink()
    return written
