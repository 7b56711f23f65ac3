"""Choice of the tables, figures and rows for `launch/reproduce.py`. Nothing here loads torch."""

from collections.abc import Sequence

from launch.studies.requests import ReproductionRequest
from pcl.config.suggestion import require_choice, suggestion


def chosen_tables(request: ReproductionRequest, names: Sequence[str]) -> list[str]:
    """Return the requested names, in the paper's order; raise a ValueError for one that is not in the paper."""
    if request.is_all:
        if request.tables or request.figures:
            raise ValueError("`--all` means every table and figure; leave out either it or `--table` and `--figure`.")
        return list(names)
    chosen = set()
    for kind, flag, asked in (("tab", "table", request.tables), ("fig", "figure", request.figures)):
        known = [name for name in names if name.startswith(f"{kind}:")]
        for text in asked:
            name = text if text.startswith(f"{kind}:") else f"{kind}:{text}"
            if name not in known:
                there = ", ".join(entry.partition(":")[2] for entry in known)
                hint = suggestion(name, known).replace(f"{kind}:", "")
                raise ValueError(f"There is no {flag} {text!r} of the paper here; there are {there}.{hint}")
            chosen.add(name)
    if not chosen:
        raise ValueError("`--table NAME`, `--figure NAME`, `--all` or `--list` must be given.")
    return [name for name in names if name in chosen]


def check_rows(rows: Sequence[str], known: Sequence[str]) -> None:
    """Raise a ValueError unless the requested rows are among those of the tables and the names of their grids."""
    for row in rows:
        require_choice("--row", row, list(dict.fromkeys(known)))
