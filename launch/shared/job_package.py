"""Packaging of a launch command for a cluster: code, lock file and the user's own files in one folder."""

import os
import shlex
import shutil
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pcl.config.user_files import Reference, is_path, mentioned
from pcl.storage.credentials import password_of
from pcl.storage.installation import INSIDE, PACKAGE, installed_folder
from pcl.storage.object_stores import check_address, is_address
from pcl.studies.ledger.provenance import COMMIT_FILE, commit

_FOLDERS = {"pcl": PACKAGE, **{name: installed_folder(name) for name in ("search_spaces", "launch", "dashboards")}}
_FILES = [PACKAGE.parent / name for name in ("pyproject.toml", "requirements.lock")]  # checkout
_STAYS = ("__pycache__", "*.pyc", ".*", INSIDE.name)
_GIVEN = "given"  # folder of the user's own files
_NAMED = ("--space", "--ablation")  # options whose files are sent with the parts that they name
_PARTS = ("--loss", "--task", "--encoder")  # options whose files are sent as FILE.py:NAME
_STUDIES = ("grid", "ablate", "reproduce")  # commands that join a cluster and record in MLflow
_TRACKED = (*_STUDIES, "champion", "verify")  # commands that need MLflow
_PLACES = ("--storage", "--checkpoint", "--output", "--data", "--weights", "--folder")  # their paths are the cluster's
_WRITES_NOTHING = ("--plan", "--list", "-h", "--help", "--show-config")


class Parcel(NamedTuple):
    """A launch command with everything that it needs on a cluster."""

    name: str  # of the launch file, without its suffix
    words: tuple[str, ...]  # its arguments; a user's file is named by its path inside the package
    files: dict[str, Path]  # the user's own files by their path inside the package
    folder: str  # absolute path on the cluster where the command starts; empty if it writes no files

    @property
    def title(self) -> str:
        """Return the command as shown in the list of jobs."""
        return shlex.join([f"launch/{self.name}.py", *self.words])

    def pack(self, into: Path) -> None:
        """Copy the code and the user's files into a folder."""
        for name, source in _FOLDERS.items():
            shutil.copytree(source, into / name, ignore=shutil.ignore_patterns(*_STAYS))
        for file in filter(Path.exists, _FILES):
            shutil.copyfile(file, into / file.name)
        (into / COMMIT_FILE).write_text(commit() + "\n")
        for name, source in self.files.items():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, into / name)

    def command(self, python: str) -> str:
        """Return the command for a node's shell, which starts where the package was unpacked.

        If the node lacks the interpreter, its own `python` is used.
        """
        words = map(self._shell_word, self.words)
        steps = ["here=$PWD", 'export PYTHONPATH="$here:$PYTHONPATH"']
        if self.folder:
            steps += [f"mkdir -p {shlex.quote(self.folder)}", f"cd {shlex.quote(self.folder)}"]
        else:
            steps += ['cd "${HOME:-/}"']  # the unpacked package may be deleted before the command ends
        steps += [f"python=$(command -v {shlex.quote(python)} || command -v python)"]
        return " && ".join([*steps, " ".join(['exec "$python"', "-m", f"launch.{self.name}", *words])])

    def _shell_word(self, word: str) -> str:
        """Quote a word; the user's files are where the package was unpacked."""
        is_file = word in self.files or word.rpartition(":")[0] in self.files
        return f'"$here"/{shlex.quote(word)}' if is_file else shlex.quote(word)


def parcel(command: list[str], folder: str | None, tracking_uri: str) -> Parcel:
    """Package a launch command for a cluster.

    Args:
        command: The command, such as launch/grid.py --space toy_elk.
        folder: Folder on the cluster that relative paths start from.
        tracking_uri: MLflow server for a study that names none.

    Raises:
        ValueError: If it is not a launch command, or its results would be lost with the job.
    """
    name, words = _split(command)
    if any(map(password_of, [*words, tracking_uri])):
        raise ValueError(
            "An address with a password would be visible to everyone who sees the job; leave it out, and set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD where the cluster is started."
        )
    storage = _value(words, "--storage")
    place = folder or storage or ""
    is_writing = not set(words) & set(_WRITES_NOTHING)
    is_store = storage is not None and is_address(storage)
    if is_store:
        check_address(str(storage))
        place = folder or ""
    if place and not PurePosixPath(place).is_absolute():
        raise ValueError(f"`--folder` and `--storage` must be absolute paths on the cluster, but got {place!r}.")
    if is_writing and not place and not is_store:
        raise ValueError(
            "A job's own folder vanishes with it: give `--folder /PATH`, an absolute path that all nodes of the "
            "cluster share, in which runs/ and data/ will be, or a study's `--storage` in a store, such as s3://BUCKET."
        )
    if not folder:
        for option in _PLACES:
            value = _value(words, option)
            if option == "--storage" and is_store:
                continue
            if value and "/" in value and not PurePosixPath(value).is_absolute():
                raise ValueError(f"`{option}` must be an absolute path on the cluster, but got {value!r}.")
    if _value(words, "--runner") == "inline":
        raise ValueError("`--runner inline` runs trials in this process: leave it out, or do not send the command.")
    if name in _STUDIES and _value(words, "--address") is None:
        words += ["--address", "auto"]
    if name in _TRACKED and tracking_uri and _value(words, "--tracking-uri") is None:
        words += ["--tracking-uri", tracking_uri]
    files = _files(words)
    return Parcel(name, tuple(words), files, place if is_writing else "")


def commands() -> list[str]:
    """Return the names of the launch files that can be sent."""
    files = sorted(installed_folder("launch").glob("*.py"))
    return [file.stem for file in files if file.stem != "submit" and "\n    run(main)\n" in file.read_text()]


def _split(command: list[str]) -> tuple[str, list[str]]:
    """Return the name of a launch file and its arguments, with `--option=value` as two words."""
    words = command[1:] if command and Path(command[0]).name in ("python", "python3") else list(command)
    if not words:
        raise ValueError("A command must be given after `--`, such as `-- launch/grid.py --space toy_elk`.")
    name = Path(words[0]).stem
    if name not in commands() or words[0] not in (name, f"{name}.py", f"launch/{name}.py", f"./launch/{name}.py"):
        known = ", ".join(f"launch/{known}.py" for known in commands())
        raise ValueError(f"The command must be one of {known}, but got {words[0]!r}.")
    return name, [part for word in words[1:] for part in (word.split("=", 1) if word.startswith("--") else [word])]


def _value(words: list[str], option: str) -> str | None:
    """Return an option's value; the last one if it is repeated."""
    found = [after for word, after in pairwise(words) if word == option]
    return found[-1] if found else None


def _files(words: list[str]) -> dict[str, Path]:
    """Return the user's own files, and replace their names in `words` by their paths inside the package."""
    files: dict[str, Path] = {}
    for index, (option, value) in enumerate(pairwise(words), start=1):
        is_part = option in _PARTS and Reference.of(value) is not None
        if not (is_part or option == "--config" or (option in _NAMED and is_path(value))):
            continue  # not a file, or one of our names: it is part of the code
        text, _, name = value.rpartition(":") if is_part else (value, "", "")
        file = Path(os.path.expanduser(text))
        if not file.is_file():
            raise ValueError(f"`{option}` must be a file here, which travels with the job, but there is no {text}.")
        is_below = is_part and not file.is_absolute() and ".." not in file.parts
        place = f"{_GIVEN}/{text if is_below else file.name}"
        words[index] = f"{place}:{name}" if is_part else place
        beside = {f"{_GIVEN}/{part}": path for part, path in _parts(file).items()} if option in _NAMED else {}
        for new, path in {place: file, **beside}.items():
            if files.setdefault(new, path).absolute() != path.absolute():
                raise ValueError(f"{path} cannot be sent together with {files[new]}: rename one of these files.")
    return files


def _parts(space: Path) -> dict[str, Path]:
    """Return the files that a space takes its loss, task and encoder from, by their paths relative to it."""
    parts = {name: path for name, path in mentioned(str(space)).items() if path.is_file()}
    for name in parts:
        if ".." in Path(name).parts:
            raise ValueError(f"{space} names {name}, which cannot be sent with it: move it next to or below the space.")
    return parts
