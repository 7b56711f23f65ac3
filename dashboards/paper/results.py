"""Results kept with the code: the paper's numbers and ours as small CSVs, each line with its origin.

`launch/reproduce.py --output` writes them, `launch/docs.py` renders them in the manual.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from hashlib import sha256
from pathlib import Path

from dashboards.paper.formats import CSV_HEADINGS, cells_of, csv_of
from pcl.config.fidelity import Profile
from pcl.config.scale import Scale
from pcl.presentation.text_tables import markdown_table
from pcl.studies.paper.comparison import DIVERGED, MISSING, NO_ERROR, NO_NUMBER, NOTHING, YARDSTICK, Line, split_mark
from pcl.studies.paper.published import AGREES, FEW_SEEDS, published_titles
from pcl.studies.tracking.tags import NUMERICS, Tag, numerics_of, shown_commit

_LONGEST_NAME = 80  # of a folder
RESULTS = Path(__file__).resolve().parents[1] / "results"
_PROFILES = [profile.value for profile in (Profile.REFERENCE, Profile.PAPER, Profile.EXACT)]  # in this order
_SCALES = [scale.value for scale in reversed(Scale)]  # the published sizes first
_CODE = {"commit": "commit {}", "source": "source {}"}  # how the code's version is shown
_JOINT = "; "  # between the places, versions or dates of one line
# Texts that a cell leaves out: other cells have them
_UNTOLD = ("", MISSING, NOTHING, NO_NUMBER, NO_ERROR, YARDSTICK, *FEW_SEEDS.values())


@dataclass(frozen=True)
class Origin:
    """The origin of a line."""

    hardware: str = ""  # that it was trained on
    torch: str = ""
    commit: str = ""  # of the code
    date: str = ""  # of the end of the training, in UTC
    numerics: str = ""  # version of the numerics, see `tags.NUMERICS`; empty for a line without runs
    source: str = ""  # hash of the code's files
    trial: str = ""  # key of the trial: its settings, images and weights; empty if unknown

    @property
    def is_older(self) -> bool:
        """Return whether this version of the code would give other numbers."""
        return self.numerics not in ("", NUMERICS)


@dataclass(frozen=True)
class Asked:
    """The settings that all lines of a table share."""

    fidelity: str
    scale: str
    data: str  # which images; toy where there are none
    of_seeds: str  # which seeds were asked for
    command: str  # that reproduces it
    changed: str = ""  # settings that are not the profile's, such as training.release_version=last

    def path_of(self, table: str) -> Path:
        """Return a table's path in the folder of all results."""
        return Path(folder_of(self.fidelity, self.scale, self.changed)) / f"{table.replace(':', '-')}.csv"


def folder_of(fidelity: str, scale: str, changed: str) -> str:
    """Return the name of the folder for what shares these settings.

    Example:
        >>> folder_of("reference", "paper", "training.release_version=last")
        'reference-paper-training.release_version-last'
    """
    name = re.sub(r"[^\w.]+", "-", f"{fidelity}-{scale}-{changed}").strip("-")
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{sha256(changed.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Result:
    """A file of results."""

    table: str  # name of the table or figure, such as tab:bench_results
    asked: Asked  # what all lines have in common
    lines: Sequence[Line]
    origins: Sequence[Origin]  # where each line comes from

    @property
    def path(self) -> Path:
        """Return its path in the folder of all results."""
        return self.asked.path_of(self.table)

    @property
    def by_row(self) -> dict[str, list[tuple[Line, Origin]]]:
        """Return the lines of each row with their origins."""
        found: dict[str, list[tuple[Line, Origin]]] = {}
        for line, origin in zip(self.lines, self.origins, strict=True):
            found.setdefault(line.row, []).append((line, origin))
        return found

    @property
    def by_numerics(self) -> dict[str, list[Line]]:
        """Return the lines of each earlier version of the numerics, and all others at ""."""
        found: dict[str, list[Line]] = {"": []}
        for line, origin in zip(self.lines, self.origins, strict=True):
            found.setdefault(origin.numerics if origin.is_older else "", []).append(line)
        return found

    @property
    def is_as_released(self) -> bool:
        """Return whether it is of the published size, with the settings of the released code."""
        return self.is_of_released_profile and not self.asked.changed

    @property
    def is_of_released_profile(self) -> bool:
        """Return whether it is of the published size, with the settings of the released code but for some."""
        return (self.asked.fidelity, self.asked.scale) == (Profile.REFERENCE.value, Scale.PAPER.value)


KeptRows = Mapping[tuple[str, str], Sequence[tuple[Line, Origin]]]  # by table and row


_COLUMNS = ("table", *CSV_HEADINGS, *(f.name for kind in (Asked, Origin) for f in fields(kind)))


def as_csv(result: Result) -> str:
    """Return all lines and their origins as CSV."""
    return csv_of([_COLUMNS, *(
        (result.table, *cells_of(line), *astuple(result.asked), *astuple(origin))
        for line, origin in zip(result.lines, result.origins, strict=True)
    )])  # fmt: skip


def read_result(path: Path) -> Result:
    """Read a file of results; a ValueError says that it is not one."""
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except UnicodeDecodeError:
        rows = []
    if len(rows) < 2 or tuple(rows[0]) != _COLUMNS or any(len(row) != len(_COLUMNS) for row in rows):
        raise ValueError(f"{path} is no file of results as `launch/reproduce.py --output` writes them.")
    content = [dict(zip(_COLUMNS, row, strict=True)) for row in rows[1:]]
    result = Result(
        content[0]["table"],
        Asked(**{f.name: content[0][f.name] for f in fields(Asked)}),
        [Line(*(row[heading] for heading in CSV_HEADINGS)) for row in content],
        [Origin(**{f.name: row[f.name] for f in fields(Origin)}) for row in content],
    )
    if result.table not in published_titles():
        raise ValueError(f"{path} is of {result.table!r}, which is no table or figure of the paper.")
    return result


def read_results(folder: Path) -> list[Result]:
    """Read all files of a folder, those at the published size first, in the paper's order."""
    names = list(published_titles())
    return sorted(
        (read_result(path) for path in sorted(folder.glob("*/*.csv"))),
        key=lambda r: (
            _place(_SCALES, r.asked.scale),
            _place(_PROFILES, r.asked.fidelity),
            r.asked.changed,
            names.index(r.table),
        ),
    )


def _place(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def as_markdown(result: Result) -> str:
    """Return a table with two lines for each row, published and ours, and below it why some have no value."""
    by_row = {name: {line.what: line for line, _ in row} for name, row in result.by_row.items()}
    # A row that has not run has no yardstick: the longest one has its place among the columns.
    metrics = list(dict.fromkeys(what for of_row in sorted(by_row.values(), key=len, reverse=True) for what in of_row))
    rows = [["", "", *metrics, "seeds"]]
    for name, of_row in by_row.items():
        counts = " / ".join(dict.fromkeys(line.seeds for line in of_row.values() if line.seeds))
        rows.append([name, "published", *(of_row[m].published if m in of_row else "" for m in metrics), ""])
        rows.append(["", "ours", *(cell_of(of_row[m]) if m in of_row else "" for m in metrics), counts])
    title = f"**{published_titles()[result.table]}** (`{result.table}`)"
    causes = dict.fromkeys(f"{line.row}: {split_mark(line.ours)[0]}" for line in result.lines if _is_cause(line))
    return "\n".join([title, "", *markdown_table(rows), *(["", f"{'; '.join(causes)}."] if causes else [])])


def _is_cause(line: Line) -> bool:
    """Return whether ours is a cause at length."""
    return "runaway" in line.ours


def cell_of(line: Line, *, is_marked: bool = True) -> str:
    """Return ours in one cell: the value, its distance from the published one, the verdict, and the mark."""
    ours, mark = split_mark(line.ours)
    mark = mark if is_marked else ""
    ours = DIVERGED if _is_cause(line) else ours
    beside = [split_mark(text)[0] for text in (line.difference, line.verdict)]
    if beside[1] == AGREES and line.detectable:
        beside[1] = f"{AGREES} within {line.detectable}"
    beside = [text for text in beside if text not in (*_UNTOLD, ours)]
    return f"{ours} ({', '.join(beside)}){mark}" if beside else f"{ours}{mark}"


def origin_words(result: Result) -> str:
    """Return the origin of our numbers, in words."""
    asked = result.asked
    seeds = f", seeds {asked.of_seeds}" if asked.of_seeds else ""
    images = "" if asked.data == "toy" else f", images {asked.data}"
    changed = f", {asked.changed}" if asked.changed else ""
    told = [f"fidelity {asked.fidelity}{changed}, scale {asked.scale}{images}{seeds}"]
    is_mixed = len({origin.numerics for origin in result.origins} - {""}) > 1
    for numerics, lines in result.by_numerics.items():
        if numerics:
            rows = dict.fromkeys(f"`{line.row}`" for line in lines)
            which = f" in {', '.join(rows)}" if is_mixed else ""
            told.append(f"numerics {numerics}{which}, where this version has {NUMERICS}: to be run again")
    for name, words in (("hardware", "{}"), ("torch", "torch {}"), ("date", "{}"), *_CODE.items()):
        found = sorted({part for origin in result.origins for part in getattr(origin, name).split(_JOINT)} - {""})
        if name == "date" and len(found) > 1:
            found = [f"{found[0]} to {found[-1]}"]
        if name in _CODE:
            found = [f"`{shown_commit(text, 12)}`" for text in found]
        if found:
            told.append(words.format(", ".join(found)))
    return f"{'; '.join(told)}: `{asked.command}`"


def joined_origin(origins: Iterable[Origin]) -> Origin:
    """Join the origins of a line whose seeds were trained at different times or places."""
    every = list(origins)
    names = (field.name for field in fields(Origin))
    return Origin(*(_JOINT.join(sorted({getattr(one, name) for one in every} - {""})) for name in names))


def origin_of(tags: Mapping[str, str], date: str) -> Origin:
    """Return the origin by the tags of a run in MLflow."""
    commit = tags.get(Tag.COMMIT, "")
    commit = "" if commit == "unknown" else commit
    hardware, torch, source = (tags.get(tag, "") for tag in (Tag.HARDWARE, Tag.TORCH, Tag.SOURCE))
    return Origin(hardware, torch, commit, date, numerics_of(tags), source)
