"""Generated parts of the README and the manual: up to date, in their places, and complete."""

from pathlib import Path

import pytest

from launch.docs import main, parsers
from launch.manual.command_reference import command_reference
from launch.manual.marked_parts import rendered, with_parts
from launch.manual.tables import settings_table
from pcl.config.fidelity import SETTINGS
from tests.support.commands import called
from tests.support.services import ROOT, assert_refused


def test_pages_are_up_to_date() -> None:
    """Whoever changes CSVs, SETTINGS or options writes the manual: python launch/docs.py."""
    found = called("launch/docs.py", main, "--check")
    assert found.returncode == 0, found.stderr


def mark(name: str, content: str = "") -> str:
    return f"<!-- begin {name}: written by launch/docs.py -->\n{content}<!-- end {name} -->\n"


def test_a_part_is_replaced_and_all_else_stays() -> None:
    parts = {"one": "ONE", "two": r"\1 TWO"}
    text, found = with_parts(f"before\n{mark('one', 'old')}between\n{mark('two')}after\n", parts)
    filled = {name: mark(name, f"\n{content}\n\n") for name, content in parts.items()}
    assert text == f"before\n{filled['one']}between\n{filled['two']}after\n"
    assert found == {"one", "two"}
    assert with_parts(text, parts)[0] == text


def test_a_part_without_a_place_and_a_place_without_a_part_are_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(mark("one"))
    assert list(rendered(tmp_path, {"one": ""})) == [tmp_path / "README.md"]
    with pytest.raises(ValueError, match="No page has the lines `<!-- begin two"):
        rendered(tmp_path, {"one": "", "two": ""})
    with pytest.raises(ValueError, match="no generated part 'one'; there are two"):
        rendered(tmp_path, {"two": ""})


def test_every_option_of_every_command_is_in_the_reference() -> None:
    every = parsers()
    assert set(every) == {path.name for path in (ROOT / "launch").glob("*.py")} - {"__init__.py"}
    text = command_reference(every)
    for name, parser in every.items():
        assert f"## {name}\n" in text
        for option in (option for action in parser._actions for option in action.option_strings):
            assert option in ("-h", "--help") or option in text
    assert "<code>--gpus-per-trial N&#124;auto</code>" in text
    assert "### bench.py vmf\n" in text


def test_every_setting_has_an_effect() -> None:
    text = settings_table()
    for setting in SETTINGS:
        assert setting.effect
        assert f"| `{setting.path}`" in text


@pytest.mark.parametrize(
    ("page", "table", "message"),
    [
        ("no marks", "", "No page has the lines"),
        (mark("nothing"), "", "There is no generated part 'nothing'"),
        (mark("results"), "a,b\n1,2\n", "x.csv is no file of results as"),
    ],
)
def test_bad_input(
    page: str, table: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "README.md").write_text(page)
    (tmp_path / "results" / "reference-paper").mkdir(parents=True)
    if table:
        (tmp_path / "results" / "reference-paper" / "x.csv").write_text(table)
    words = ["--root", str(tmp_path), "--results", str(tmp_path / "results")]
    assert_refused("launch/docs.py", main, words, message, monkeypatch, capsys)
    assert (tmp_path / "README.md").read_text() == page
    words = ["--results", str(tmp_path / "nowhere")]
    assert_refused("launch/docs.py", main, words, "there is no folder", monkeypatch, capsys)
