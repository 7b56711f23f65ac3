"""The headline of the kept results: the paper's numbers with an error, each counted once."""

from pathlib import Path

from dashboards.paper.headline import headline, verdicts
from dashboards.paper.results import RESULTS, Asked, Origin, Result, read_results
from pcl.studies.paper.comparison import Line
from pcl.studies.paper.published import numbers_with_error
from pcl.studies.tracking.tags import NUMERICS

ROOT = Path(__file__).parents[2]
PLACES = (("tab:toy_correctsetups", "ambiguous", "μ RMSE"), ("tab:bench_results", "MCInfoNCE", "μ RMSE"))


def kept(place: tuple[str, str, str], verdict: str, numerics: str = NUMERICS, scale: str = "paper") -> Result:
    table, row, what = place
    asked = Asked("reference", scale, "toy", "4 5 6 7 8", "python launch/reproduce.py")
    return Result(table, asked, [Line(row, what, "0.04±0.00", verdict=verdict)], [Origin(numerics=numerics)])


def test_a_number_that_several_tables_have_counts_once() -> None:
    (places,) = [places for places in numbers_with_error() if PLACES[0] in places]
    assert PLACES[1] in places
    assert not any(table.startswith("fig:mc") for table, _, _ in places)  # it says where its number comes from

    found = verdicts([kept(place, "agrees") for place in PLACES])

    assert found == {"agrees": 1, "not run": len(numbers_with_error()) - 1}


def test_runs_that_do_not_say_the_same_are_counted_as_such() -> None:
    both = [kept(place, verdict) for place, verdict in zip(PLACES, ("agrees", "worse"), strict=True)]

    assert "1 differs from run to run" in headline(both)


def test_what_is_shorter_changed_or_of_earlier_numerics_says_nothing() -> None:
    older, shorter = kept(PLACES[0], "agrees", numerics="3"), kept(PLACES[0], "agrees [quick]", scale="quick")
    changed = kept(PLACES[0], "agrees [changed]")

    assert verdicts([older, shorter, changed]) == {"not run": len(numbers_with_error())}


def test_the_paper_prints_48_numbers_with_an_error_and_all_have_run() -> None:
    found = verdicts(read_results(RESULTS))

    assert found.total() == 48
    assert "not run" not in found
    readme = (ROOT / "README.md").read_text()
    assert (
        f"{found.total()} numbers with an error* all have run: {found['agrees']} agree, {found['better']} are" in readme
    )
