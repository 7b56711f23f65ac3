"""Results that are kept with the code: written with where they come from, read back, and rendered in the manual."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.board.html.frame import PageContext
from dashboards.board.pages.scoreboard import scoreboard_page
from dashboards.paper.formats import Sheet
from dashboards.paper.headline import changes, headline, verdicts
from dashboards.paper.results import Asked, Origin, Result, as_csv, as_markdown, origin_words, read_result, read_results
from launch.manual.tables import changes_table, results_tables, status_table
from launch.reproduction.cells import Cells, Setting
from launch.reproduction.results import check_kept, check_output, origins_of, rendering, write_results
from launch.shared.command import settings
from pcl.studies.paper.comparison import YARDSTICK, Line
from pcl.studies.tracking.finished_trials import Found, Known
from pcl.studies.tracking.tags import NUMERICS
from pcl.studies.tracking.tracker import Tracker
from tests.support.kept_results import ASKED, DAY_MS, TABLES, TAGS, keep
from tests.support.services import ROOT

LAST_VERSION = "training.release_version=last"
COMMAND = (
    "python launch/reproduce.py --table toy_correctsetups --table infonce --figure 2dplot --scale paper --seeds 4,5,6"
)


def test_a_file_says_where_every_line_comes_from(tmp_path: Path) -> None:
    (path,) = keep(tmp_path)  # of the other table nothing has been trained
    assert path == tmp_path / "reference-paper" / "tab-toy_correctsetups.csv"
    result = read_result(path)
    assert (result.asked.command, result.asked.of_seeds, result.asked.data) == (COMMAND, "4 5 6", "toy")
    origins = {line.row: origin for line, origin in zip(result.lines, result.origins, strict=True)}
    key = Cells.of([TABLES[result.table]], Setting("reference", "paper", (4, 5, 6))).keys[result.table, "ambiguous"]
    of_run = (TAGS["pcl.commit"], "2026-11-15", NUMERICS, "50c4ce")
    assert origins["ambiguous"] == Origin("NVIDIA H200", "2.11.0", *of_run, key)
    assert origins["clear"].date == "2026-11-16"
    assert origins["injective"] == Origin()
    lines = {(line.row, line.what): line for line in result.lines}
    assert lines["clear", "κ RMSE"].seeds == "2 of 3"  # a mean of those that are left does not pass for all
    assert lines["ambiguous", "κ RMSE"].ours == "6.300±0.035"
    assert lines["injective", "μ RMSE"].ours == "not run"


def test_seeds_of_one_line_may_be_of_different_days() -> None:
    setting = Setting("reference", "paper", (4, 5))
    cells = Cells.of([TABLES["tab:toy_correctsetups"]], setting)
    trials = (
        Found("s", "r", {4: {}}, {}, TAGS, DAY_MS),
        Found("s", "q", {5: {}}, {}, {**TAGS, "pcl.torch": "2.12.0"}, DAY_MS + 86_400_000),
    )
    place = ("tab:toy_correctsetups", "ambiguous")
    found = {cells.keys[place]: Known(setting.seeds, trials)}
    origin = origins_of(cells, found, [], Tracker("sqlite:///unused.db"))[place]
    assert origin == Origin(
        "NVIDIA H200", "2.11.0; 2.12.0", TAGS["pcl.commit"], "2026-11-15; 2026-11-16", NUMERICS, "50c4ce",
        cells.keys[place],
    )  # fmt: skip
    line = Line("ambiguous", "x", "1", "1")
    words = origin_words(
        Result("tab:toy_correctsetups", Asked("reference", "paper", "toy", "4 5", "c"), [line], [origin])
    )
    assert "NVIDIA H200; torch 2.11.0, 2.12.0; 2026-11-15 to 2026-11-16; commit" in words
    assert words.endswith("commit `c0ffeec0ffee+`; source `50c4ce`: `c`")


def of_numerics(result: Result, numerics_of: Callable[[str], str]) -> Result:
    """Return the result with other numerics in the rows that have run."""
    zipped = zip(result.lines, result.origins, strict=True)
    origins = [replace(origin, numerics=numerics_of(line.row) * bool(origin.numerics)) for line, origin in zipped]
    return replace(result, origins=origins)


def test_results_of_other_numerics_say_so(tmp_path: Path) -> None:
    (path,) = keep(tmp_path)
    result = read_result(path)
    assert not any(origin.is_older for origin in result.origins)
    assert "numerics" not in origin_words(result)
    older = of_numerics(result, lambda _: "3")
    path.write_text(as_csv(older))
    assert read_result(path) == older
    assert f"numerics 3, where this version has {NUMERICS}: to be run again" in origin_words(older)
    page = scoreboard_page([], (4, 5, 6), PageContext(now_ms=10**12), [older])
    yardsticks = sum("best constant" in line.what for line in older.lines)  # which the board does not have
    assert page.count(f"numerics 3, now {NUMERICS}") == sum(origin.is_older for origin in older.origins) - yardsticks
    assert f"numerics {NUMERICS}" not in scoreboard_page([], (4,), PageContext(now_ms=10**12), [result])


def test_a_table_of_two_numerics_names_the_older_rows(tmp_path: Path) -> None:
    result = read_result(keep(tmp_path)[0])
    (old, *_) = (line.row for line, origin in zip(result.lines, result.origins, strict=True) if origin.numerics)
    mixed = of_numerics(result, lambda row: "3" if row == old else NUMERICS)
    assert f"numerics 3 in `{old}`, where this version has {NUMERICS}: to be run again" in origin_words(mixed)
    own, then = (
        next(row for row in status_table([of]).splitlines() if f"`{result.table}`" in row) for of in (result, mixed)
    )
    now, _, older = then.partition("; numerics 3, to be run again: ")
    counts = [
        Counter({name: int(n) for n, name in re.findall(r"(\d+) ([a-z ]*[a-z])", row)}) for row in (own, now, older)
    ]
    assert counts[0] == counts[1] + counts[2]
    assert counts[2].total() == sum(line.row == old and line.verdict != YARDSTICK for line in result.lines)
    wholly = of_numerics(result, lambda _: "2")
    ran = [place for place, origin in enumerate(wholly.origins) if origin.numerics]
    wholly = replace(wholly, lines=[wholly.lines[i] for i in ran], origins=[wholly.origins[i] for i in ran])
    assert f"`{result.table}` | numerics 2, to be run again: " in status_table([wholly])
    two = of_numerics(result, lambda row: "3" if row == old else "2")
    assert f"numerics 3 in `{old}`, where" in origin_words(two)
    assert "; numerics 2 in `" in origin_words(two)


def test_it_is_rendered(tmp_path: Path) -> None:
    results = read_results(keep(tmp_path)[0].parents[1])
    (result,) = results
    text = as_markdown(result)
    assert "| ambiguous | published | 0.04±0.00 | 0.99±0.00 | 6.15±0.61 | not printed | 0.82±0.04 |  |" in text
    assert "6.300±0.035 (+0.2, agrees within 1.2)" in text
    assert "| κ RMSE of the best constant |" in text
    (of_constant,) = [line for line in result.lines if line.row == "ambiguous" and "constant" in line.what]
    assert 1 < float(of_constant.ours) < 5  # 2.2 over all of the report seeds
    assert "yardstick" not in text + status_table(results)
    assert "| 3 / 2 of 3 |" in text  # of mu, which was trained before kappa ran away, and of kappa
    words = origin_words(result)
    assert words == (
        "fidelity reference, scale paper, seeds 4 5 6; NVIDIA H200; torch 2.11.0; 2026-11-15 to 2026-11-16; "
        f"commit `c0ffeec0ffee+`; source `50c4ce`: `{COMMAND}`"
    )
    assert results_tables(results) == f"{text}\n\n{words}"
    twice = results_tables(
        [result, replace(result, table="fig:mc"), replace(result, origins=[Origin()] * len(result.lines))]
    )
    assert twice.count(words) == 1
    assert f"\n\nThese 2: {words}\n\n**MCInfoNCE" in twice
    assert results_tables([]) == ""
    assert "agree, " in status_table(results)
    assert status_table(results).count("| not run |") == 16
    assert "`tab:contr_exp_params` | settings alone, nothing to train |" in status_table(results)


def test_other_settings_are_kept_beside_those_of_the_profile(tmp_path: Path) -> None:
    """They are counted apart, in the manual and on the board, and each number stands beside the profile's."""
    own, other = *keep(tmp_path), *keep(tmp_path, LAST_VERSION)
    assert other.relative_to(tmp_path).as_posix() == (
        "reference-paper-training.release_version-last/tab-toy_correctsetups.csv"
    )
    results = read_results(tmp_path)
    assert [result.asked.changed for result in results] == ["", LAST_VERSION]
    assert headline(results) == headline([read_result(own)])
    assert verdicts(results, LAST_VERSION) == verdicts([read_result(own)])  # the same numbers in both
    assert changes(results) == [LAST_VERSION]

    assert results_tables(results) == results_tables([read_result(own)])
    assert f"With `{LAST_VERSION}`: 48 numbers with an error: 40 not run" in status_table(results)
    text = changes_table(results)
    cell = "6.300±0.035 (+0.2, agrees within 1.2)"
    assert f"| `tab:toy_correctsetups` | ambiguous | κ RMSE | 6.15±0.61 | {cell} | {cell} |" in text
    assert text.count("| `tab:toy_correctsetups` |") == 8  # rows that ran
    assert f"--set {LAST_VERSION}`" in text
    assert changes_table([read_result(own)]) == "Not run yet."

    page = scoreboard_page([], (4, 5, 6), PageContext(now_ms=10**12), results)
    assert f"reference · paper · toy · {LAST_VERSION}" in page
    assert headline(results, LAST_VERSION) in page


def test_a_cell_without_a_value_is_short() -> None:
    cause = "runaway kappa: its median 1e+07 is beyond training.kappa_limit = 1e+06 at batch 5"
    lines = [
        Line("HIB", "μ RMSE", "0.18±0.02", cause, "0 of 2", "—", "ran away"),
        Line("HIB", "κ RMSE", "κ grows", cause, "0 of 2", "—", "agrees"),
        Line("ELK", "μ RMSE", "0.02±0.00", "0.032±0.005", "2", "+2.1", "two seeds"),
    ]
    asked = Asked("reference", "paper", "toy", "4 5", "c")
    text = as_markdown(Result("tab:bench_results", asked, lines, [Origin()] * 3))
    assert "|  | ours | ran away | ran away (agrees) | 0 of 2 |" in text
    assert "|  | ours | 0.032±0.005 (+2.1) |  | 2 |" in text
    assert text.endswith(f"\n\nHIB: {cause}.")


def test_marks_stay(tmp_path: Path) -> None:
    line = Line("<b>a|b</b>", "κ RMSE", "6.15±0.61", "2.7±0.6 [smoke]", "2", "-3.7 [smoke]", "better [smoke]")
    request = replace(ASKED, output=tmp_path)
    origins = {("fig:mc", line.row): Origin("a laptop")}
    (path,) = write_results(request, [Sheet("fig:mc", "", "", [line])], Setting("paper", "smoke", (4, 5)), origins, {})
    assert "| | ours | 2.7±0.6 (-3.7, better) [smoke] | 2 |" in as_markdown(read_result(path)).replace("|  |", "| |")
    assert r"<b>a\|b</b>" in as_markdown(read_result(path))


@pytest.mark.parametrize(
    ("texts", "seeds", "told"),
    [
        ((), (4, 5, 6), ""),
        ((), (4, 5, 6, 7), ""),
        ((), (4, 5), "has the seeds 4 5 6, which would be lost; choose another `--output`"),
        ((LAST_VERSION,), (4, 5), ""),  # a file of its own
    ],
)
def test_a_kept_file_is_not_replaced_by_less(
    texts: tuple[str, ...], seeds: tuple[int, ...], told: str, tmp_path: Path
) -> None:
    keep(tmp_path)
    config = replace(ASKED.config, settings=settings(texts), setting_texts=texts)
    request = replace(ASKED, output=tmp_path, config=config)
    setting = Setting("reference", "paper", seeds, settings(texts))
    with pytest.raises(ValueError, match=told) if told else contextlib.nullcontext():
        check_kept(request, ["tab:toy_correctsetups", "fig:2dplot"], setting)
    check_kept(request, ["tab:infonce"], setting)


def test_the_command_that_renders_names_the_folder() -> None:
    assert rendering(ROOT / "dashboards" / "results") == "; `python launch/docs.py` puts them into the manual"
    assert "`python launch/docs.py --results 'my results'`" in rendering(Path("my results"))


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_output(None)
    check_output(tmp_path / "new" / "folder")
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(ValueError, match="`--output` must be a folder that can be written to"):
            check_output(path)
