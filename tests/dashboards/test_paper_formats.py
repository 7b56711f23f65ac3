"""Tables beside the paper as text, Markdown, CSV, LaTeX and HTML."""

import csv
import io
import re
from html.parser import HTMLParser

from dashboards.paper.formats import FORMATS, Sheet, page
from pcl.studies.paper.comparison import Line

SHEET = Sheet(
    "tab:x", "A & B <script>", "50% of $x_1$", [Line("<b>a|b</b>", "κ", "1±0", "2±1 [smoke]", "2", "+1.0 [smoke]", "x")]
)


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_formats() -> None:
    written = {ending: render(SHEET) for ending, render in FORMATS.items()}
    assert set(written) == {"txt", "md", "csv", "tex", "html"}
    assert list(csv.reader(io.StringIO(written["csv"])))[1] == [
        "<b>a|b</b>", "κ", "1±0", "2±1 [smoke]", "2", "+1.0 [smoke]", "x", "",
    ]  # fmt: skip
    table = [line for line in written["md"].splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {9}
    assert all(rule in written["tex"] for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"50\% of \$x\_1\$"))
    assert r"A \& B $<$script$>$" in written["tex"]
    assert r"2$\pm$1 [smoke]" in written["tex"]
    found = _PageReader()
    found.feed(written["html"])
    assert "script" not in found.tags
    assert "b" not in found.tags
    assert "<b>a|b</b>" in found.texts
    assert "2±1 [smoke]" in written["txt"]
    assert "http" not in page("x", [SHEET, SHEET])
    assert '<a href="tab-y.html">tab-y</a>' in page("x", [SHEET], others=["tab-y"])  # an earlier call's is still found
