"""Tables that scripts can sort and filter, and that can be read without scripts."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pcl.presentation.markup import Child, Html, tag

_FIRST_ROWS = 200  # of a long table, shown before all are asked for

_Told = str | list[str | None] | None  # of a cell: its text, or its text and sort key, or neither


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: Child
    is_number: bool = False  # whether its values are numbers
    words: str = ""  # what it means
    where: str = ""  # where it is shown: "screen", "print" or "wide" (not on narrow screens); empty: everywhere

    @property
    def kind(self) -> str | None:
        """Return its cells' classes in the style sheet."""
        names = ["number" if self.is_number else "", f"only-{self.where}" if self.where else ""]
        return " ".join(filter(None, names)) or None


class Cell(NamedTuple):
    """A cell; a tuple, as there are tens of thousands."""

    content: Child | Callable[[], Html]  # what is shown, or a function that makes it
    value: float | str | None = None  # sort key, if it differs from the text


@dataclass(frozen=True)
class TableRow:
    """A row of a table."""

    cells: Sequence[Cell | Child]  # one for every column, the first of which names the row
    state: str = ""  # what it can be filtered by
    run: str = ""  # its run, if rows can be compared
    is_marked: bool = False  # whether it stands out


def table(
    name: str, caption: str, columns: Sequence[Column], rows: Sequence[TableRow], *, has_filter: bool = True,
    kind: str = "", is_long: bool = False,
) -> Html:  # fmt: skip
    """Return a table that scripts can sort and filter; `name` is its id, `kind` more classes of the style sheet.

    With `is_long`, only the first rows are markup; the others are data that `board.js` turns into rows, which loads
    thousands several times as fast. Cells must then be text or, if they depend only on the row's state and run,
    functions that make their markup.
    """
    can_compare = any(row.run for row in rows)
    head = [tag("th", tag("span", "Compare", class_="unseen"), scope="col", class_="pick")] if can_compare else []
    head += [
        tag("th", tag("button", c.title, type="button", title=c.words or None), scope="col", class_=c.kind)
        for c in columns
    ]  # fmt: skip
    n_made = _FIRST_ROWS if is_long else len(rows)
    made = [_row(row, columns, can_compare) for row in rows[:n_made]]
    states = list(dict.fromkeys(row.state for row in rows if row.state))
    tools = _tools(name, caption, states, len(rows)) if has_filter and len(rows) > 1 else None
    grid = tag("table", tag("caption", caption, class_="unseen"), tag("thead", tag("tr", head)),
               tag("tbody", made, class_="first"), id=name, class_=f"sortable {kind}".strip())  # fmt: skip
    return tag("div", tools, tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=caption),
               _more(rows[n_made:]), class_="table", data_first=n_made if len(rows) > n_made else None)  # fmt: skip


def _more(rows: Sequence[TableRow]) -> Child:
    """Return rows as JSON for `board.js`, and a note for browsers without scripts."""
    if not rows:
        return None
    told = [[row.run, row.state, row.is_marked, [None, *map(_told, row.cells)]] for row in rows]
    data = json.dumps(told, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    missing = f"{len(rows):,} more rows are shown if scripts are enabled."
    return [tag("noscript", tag("p", missing)), tag("script", Html(data), type="application/json", class_="more")]


def _told(cell: Cell | Child) -> _Told:
    if not isinstance(cell, Cell):
        return str(cell)
    content, key = None if callable(cell.content) else str(cell.content), _key(cell)
    return content if key is None else [content, key]


def _key(cell: Cell | Child) -> str | None:
    """Return a cell's sort key, if it differs from the text."""
    if not isinstance(cell, Cell) or cell.value is None:
        return None
    return f"{cell.value:.9g}" if isinstance(cell.value, float) else str(cell.value)


def _tools(name: str, caption: str, states: Sequence[str], n_rows: int) -> Html:
    options = [tag("option", "all states", value=""), *(tag("option", state, value=state) for state in states)]
    chooser = tag("select", options, aria_label=f"State of {caption}", class_="state") if len(states) > 1 else None
    field = tag("input", type="search", placeholder="Filter", aria_label=f"Filter {caption}", aria_controls=name)
    count = tag("span", f"{n_rows:,} rows" if n_rows else "", class_="count", role="status")
    return tag("div", field, chooser, count, class_="tools", hidden=True)


def _row(row: TableRow, columns: Sequence[Column], can_compare: bool) -> Html:
    cells: list[Child] = []
    if can_compare:
        box = tag("input", type="checkbox", value=row.run, aria_label="Choose for comparing") if row.run else None
        cells.append(tag("td", box, class_="pick"))
    for index, (column, cell) in enumerate(zip(columns, row.cells, strict=True)):
        content, key = cell.content if isinstance(cell, Cell) else cell, _key(cell)
        content = content() if callable(content) else content
        if index == 0:
            cells.append(tag("th", content, scope="row", data_value=key))
        else:
            cells.append(tag("td", content, class_=column.kind, data_value=key))
    return tag(
        "tr", cells, data_state=row.state or None, data_run=row.run or None, class_="marked" if row.is_marked else None
    )


def filter_all(states: Sequence[str]) -> Html:
    """Return a filter of all tables of a page."""
    return tag("div", _tools("main", "all tables", states, 0), class_="all")
