"""Tables of the manual: settings of the profiles, kept results, spaces, ablations and reproduced tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from dashboards.paper.headline import changes, headline, lines_with_error
from dashboards.paper.results import Result, as_markdown, cell_of, origin_words
from pcl.config.fidelity import SETTINGS, Setting
from pcl.presentation.text_tables import markdown_table
from pcl.studies.paper.comparison import NO_ERROR, NO_NUMBER, NOTHING, YARDSTICK, Line, split_mark
from pcl.studies.paper.published import AGREES, numbers_with_error, published_sizes, published_titles

_SUMMARY = "tab:bench_results"
_VERDICTS = {AGREES: "agree", NO_ERROR: "not comparable", NO_NUMBER: "not comparable", NOTHING: "not comparable"}


def settings_table() -> str:
    """Return every setting in which text, released code and theorem differ."""
    rows = [["setting", "`paper`", "`reference`", "`exact`", "effect"]]
    for setting in SETTINGS:
        where = setting.where
        special = "" if where is None else f"; {where.value} if {where.path} = {where.equals}"
        values = (_number(setting.paper), f"{_number(setting.reference)}{special}", _number(setting.exact))
        rows.append([f"`{setting.path}`{_scope(setting)}", *values, setting.effect])
    return "\n".join(markdown_table(rows))


def _number(value: object) -> str:
    return f"{value:g}".replace("e+0", "e") if isinstance(value, float) else str(value)


def _scope(setting: Setting) -> str:
    scope = ", ".join(filter(None, [setting.loss, setting.task]))
    return f" ({scope})" if scope else ""


def results_tables(results: Sequence[Result]) -> str:
    """Return the kept tables that `changes_table` lacks; tables of one origin state it once, below the last."""
    parts = []
    own = (result for result in results if not (result.is_of_released_profile and result.asked.changed))
    for words, group in groupby(own, origin_words):
        tables = [as_markdown(result) for result in group]
        subject = f"These {len(tables)}: " if len(tables) > 1 else ""
        parts += [*tables, f"{subject}{words}"]
    return "\n\n".join(parts)


def summary_table(results: Sequence[Result]) -> str:
    """Return the paper's main comparison of losses, as kept at the published size."""
    kept = (result for result in results if result.table == _SUMMARY and not result.asked.changed)
    return next(map(as_markdown, kept), "Not run yet.")


def status_table(results: Sequence[Result]) -> str:
    """Return all verdicts in a line, and a row for each table and figure of the paper, including those not run."""
    kept = {result.table: result for result in results if result.is_as_released}
    told = {name: _verdicts(result) for name, result in kept.items()}
    told.setdefault(published_sizes()["name"], "settings alone, nothing to train")
    rows = [["table or figure", "name", "our numbers against the published ones"]]
    rows += [[title, f"`{name}`", told.get(name, "not run")] for name, title in published_titles().items()]
    told_of = [f"**The paper has {headline(results)}.**"]
    told_of += [f"With `{changed}`: {headline(results, changed)}." for changed in changes(results)]
    return "\n".join([" ".join(told_of), "", *markdown_table(rows)])


def changes_table(results: Sequence[Result]) -> str:
    """Return the paper's numbers with an error that also ran with other settings, next to the profile's results."""
    changed = changes(results)
    as_released, others = lines_with_error(results), [lines_with_error(results, settings) for settings in changed]
    rows = [["table", "row", "metric", "published", "`reference`", *(f"`{settings}`" for settings in changed)]]
    for places, lines, *found in zip(numbers_with_error(), as_released, *others, strict=True):
        if any(found):
            printed = next(line.published for of_one in (lines, *found) for line in of_one)
            table, row, what = places[0]
            rows.append([f"`{table}`", row, what, printed, *(_first_cell(of_one) for of_one in (lines, *found))])
    of_released = [result for result in results if result.is_of_released_profile and result.asked.changed]
    commands = dict.fromkeys(f"`{result.asked.command}`" for result in of_released)
    return "\n".join([*markdown_table(rows), "", ", ".join(commands)]) if len(rows) > 1 else "Not run yet."


def _first_cell(lines: Sequence[Line]) -> str:
    return cell_of(lines[0], is_marked=False) if lines else "not run"


def _verdicts(result: Result) -> str:
    told = []
    for numerics, lines in result.by_numerics.items():
        named = (split_mark(line.verdict)[0] for line in lines)
        found = Counter(_VERDICTS.get(verdict, verdict) for verdict in named if verdict != YARDSTICK)
        if found:
            mark = f"numerics {numerics}, to be run again: " if numerics else ""
            told.append(mark + ", ".join(f"{count} {verdict}" for verdict, count in found.most_common()))
    return "; ".join(told)


def titles_table(heading: str, titles: Mapping[str, str]) -> str:
    """Return a table of names and titles."""
    return "\n".join(markdown_table([[heading, ""], *([f"`{name}`", title] for name, title in titles.items())]))
