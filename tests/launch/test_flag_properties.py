"""Flags of any text: a request whose settings are those that were given, or one sentence."""

import argparse
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.ablate import _parser as ablate_parser
from launch.ablate import request_of as ablation_request
from launch.grid import _parser as grid_parser
from launch.grid import request_of as grid_request
from launch.shared.command import settings
from launch.studies.requests import StudyRequest
from pcl.config.canonical_settings import canonical_settings
from pcl.studies.ledger.study_names import check_name, check_new_name, default_name
from tests.support.properties import check_sentence, examples

PATHS = st.sampled_from(["training.lr", "loss.n_samples", "task.data", "training.phases", "loss.kappa_po"]) | st.text(
    max_size=6
)
VALUES = st.sampled_from(["1e-3", " 8", "mu kappa:2", "true", "a=b", ""]) | st.floats().map(repr) | st.text(max_size=6)
SETTINGS = st.dictionaries(PATHS.filter(lambda path: "=" not in path), VALUES, max_size=3)
GRID, ABLATE = grid_parser(), ablate_parser()
TEXTS = st.sampled_from(
    ["1,2,3", "4 5", "1_0", "auto", "smoke", "0.5", "-1", "nan", "1e400", "s3://", "../up"]
) | st.text(max_size=6)
FLAGS = [
    "--seeds",
    "--name",
    "--resume",
    "--trials",
    "--storage",
    "--time-budget",
    "--gpus-per-trial",
    "--cpus-per-trial",
    "--side-by-side",
    "--objectives",
    "--search-seed",
    "--scale",
]


@examples(20)
@given(chosen=SETTINGS)
def test_settings_are_those_that_were_given(chosen: dict[str, str]) -> None:
    found = settings([f"{path} = {value}" for path, value in chosen.items()])
    assert found == {path.strip(): value.strip() for path, value in chosen.items()}
    again = canonical_settings(json.loads(json.dumps(found)))
    assert repr(again) == repr(canonical_settings(found))  # NaN is not equal to itself


@examples(25)
@given(text=st.text(max_size=10).filter(lambda text: "=" not in text))
def test_a_setting_without_a_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PATH=VALUE"):
        settings([text])


def request_of(parser: argparse.ArgumentParser, words: Sequence[str], is_grid: bool) -> StudyRequest:
    arguments = parser.parse_args(words)
    return grid_request(arguments) if is_grid else ablation_request(arguments)


@examples(75)
@given(is_grid=st.booleans(), flags=st.dictionaries(st.sampled_from(FLAGS), TEXTS, max_size=3), chosen=SETTINGS)
def test_any_flags_make_a_request_or_a_sentence(
    capsys: pytest.CaptureFixture[str], is_grid: bool, flags: dict[str, str], chosen: dict[str, str]
) -> None:
    words = ["=".join(pair) for pair in flags.items()]
    words += [f"--set={path}={value}" for path, value in chosen.items()]
    parser = GRID if is_grid else ABLATE
    try:
        request = request_of(parser, ["--space=toy_hib" if is_grid else "--ablation=loss", *words], is_grid)
    except ValueError as error:
        check_sentence(error)
        return
    except SystemExit:
        (sentence,) = capsys.readouterr().err.splitlines()
        assert sentence.endswith("`--help` shows all options.")
        return
    assert request.declared == ("toy_hib" if is_grid else "loss")
    assert request.config.settings == {path.strip(): value.strip() for path, value in chosen.items()}
    read = {
        "--scale": request.config.scale, "--name": request.study.name, "--resume": request.study.resume,
        "--trials": request.search.n_trials, "--search-seed": request.search.search_seed,
        "--cpus-per-trial": request.run.resources.cpus, "--side-by-side": request.run.resources.side_by_side,
        "--gpus-per-trial": request.run.resources.gpus,
    }  # fmt: skip
    for flag, value in read.items():
        text = flags.get(flag)
        if text is not None:  # a flag that was given has its value, as it was spelled
            assert value == (text if isinstance(value, str) else type(value)(text)), (flag, text)
        else:
            assert value == {"--cpus-per-trial": 1.0, "--gpus-per-trial": "auto"}.get(flag), flag


@examples(50)
@given(
    text=st.text(max_size=12)
    | st.from_regex(r"[A-Za-z0-9_.-]+", fullmatch=True)
    | st.integers(150, 260).map("x".__mul__)
)
def test_a_name_of_a_study_is_one_of_a_file_in_its_folder(text: str) -> None:
    for check in (check_name, check_new_name):
        try:
            found = check(text)
        except ValueError as error:
            check_sentence(error)
        else:
            assert found == text
            assert text.isascii()
            assert "/" not in text
            assert not text.startswith((".", "-"))
            assert 0 < len(text) <= 255
            assert text not in ("artifacts", "mlflow.db") or check is check_name


@examples(50)
@given(what=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]*", fullmatch=True), data=st.text(max_size=300))
def test_a_default_name_can_be_one(what: str, data: str) -> None:
    name = default_name(what, data, "smoke")
    assert check_new_name(name) == name
