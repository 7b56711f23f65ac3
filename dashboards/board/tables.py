"""Tables that can be sorted and filtered where there are scripts, and read where there are none."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.markup import Child, Html, tag

_FIRST_ROWS = 200  # of a long table, shown before all are asked for


@dataclass(frozen=True)
class Column:
    """Of a table.

    Attributes:
        title: Stands above.
        is_number: Whether its values are numbers.
        words: What it means.
    """

    title: Child
    is_number: bool = False
    words: str = ""


@dataclass(frozen=True)
class Cell:
    """Of a table.

    Attributes:
        content: What is shown.
        value: What it is sorted by, where that is another thing.
    """

    content: Child
    value: float | str | None = None


@dataclass(frozen=True)
class TableRow:
    """Of a table.

    Attributes:
        cells: One for every column, the first of which names the row.
        state: What it can be filtered by.
        run: Which run it is of, where two of them can be compared.
        is_marked: Whether it stands out.
    """

    cells: Sequence[Cell | Child]
    state: str = ""
    run: str = ""
    is_marked: bool = False


def table(
    name: str, caption: str, columns: Sequence[Column], rows: Sequence[TableRow], *, has_filter: bool = True,
    kind: str = "",
) -> Html:  # fmt: skip
    """A table that can be sorted and filtered where there are scripts; of many rows, the first are shown."""
    can_compare = any(row.run for row in rows)
    head = [tag("th", tag("span", "Compare", class_="unseen"), scope="col", class_="pick")] if can_compare else []
    head += [
        tag("th", tag("button", c.title, type="button", title=c.words or None), scope="col",
            class_="number" if c.is_number else None)
        for c in columns
    ]  # fmt: skip
    made = [_row(row, columns, can_compare) for row in rows]
    more = tag("tbody", made[_FIRST_ROWS:], class_="more", hidden=True) if len(made) > _FIRST_ROWS else None
    states = list(dict.fromkeys(row.state for row in rows if row.state))
    tools = _tools(name, caption, states, len(rows)) if has_filter and len(rows) > 1 else None
    grid = tag("table", tag("caption", caption, class_="unseen"), tag("thead", tag("tr", head)),
               tag("tbody", made[:_FIRST_ROWS], class_="first"), more, id=name,
               class_=f"sortable {kind}".strip())  # fmt: skip
    return tag("div", tools, tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=caption),
               class_="table", data_first=_FIRST_ROWS)  # fmt: skip


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
        content, value = (cell.content, cell.value) if isinstance(cell, Cell) else (cell, None)
        key = f"{value:.9g}" if isinstance(value, float) else value
        if index == 0:
            cells.append(tag("th", content, scope="row", data_value=key))
        else:
            cells.append(tag("td", content, class_="number" if column.is_number else None, data_value=key))
    return tag(
        "tr", cells, data_state=row.state or None, data_run=row.run or None, class_="marked" if row.is_marked else None
    )


def filter_all(states: Sequence[str]) -> Html:
    """A filter of all tables of a page at once."""
    return tag("div", _tools("main", "all tables", states, 0), class_="all")
