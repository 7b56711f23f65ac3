"""A table of lines as text, Markdown, CSV, LaTeX (booktabs) and HTML."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pcl.presentation.markup import Child, Html, document, lines, tag
from pcl.presentation.text_tables import aligned, markdown_table
from pcl.studies.paper.comparison import Line

_HEADINGS = ("", "metric", "published", "ours", "seeds", "difference (s.e.)", "verdict", "agrees within")
CSV_HEADINGS = (
    "row", "metric", "published", "ours", "seeds", "difference_in_standard_errors", "verdict", "agrees_within",
)  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --paper: #fff; --faint: #c9ced8; --mark: #b4570b; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #dfe4ec; --paper: #171b22; --faint: #414a59; --mark: #f0a35c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
       margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: .5rem 0 1rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--faint); }
thead th { border-bottom-width: 2px; }
img { max-width: 100%; height: auto; background: #fff; }
.scroll { overflow-x: auto; }
@media print { :root { color-scheme: light; } body { font-size: 10px; margin: 0; padding: 0; max-width: none; }
  .scroll { overflow: visible; } th, td { padding: .15rem .3rem; overflow-wrap: anywhere; }
  tr, img { break-inside: avoid; } h2 { break-after: avoid; } }
.reduced { color: var(--mark); }
"""


@dataclass(frozen=True)
class Sheet:
    """A table or figure as it is written."""

    name: str  # of the paper, such as tab:bench_results
    title: str
    caption: str  # origin of our numbers
    lines: Sequence[Line]
    picture: str = ""  # file of the figure beside it; empty where there is none

    @property
    def file(self) -> str:
        """Return its files' name, without the ending."""
        return self.name.replace(":", "-")


def cells_of(line: Line) -> tuple[str, ...]:
    """Return a line's cells, from left to right."""
    of_comparison = (line.difference, line.verdict, line.detectable)
    return (line.row, line.what, line.published, line.ours, line.seeds, *of_comparison)


def text(sheet: Sheet) -> str:
    """Return a table for a terminal."""
    rows = [_HEADINGS, *map(cells_of, sheet.lines)]
    picture = [f"picture: {sheet.picture}"] if sheet.picture else []
    return "\n".join([f"{sheet.name}: {sheet.title}", sheet.caption, *aligned(rows), *picture]) + "\n"


def markdown(sheet: Sheet) -> str:
    """Return a table in Markdown."""
    rows = markdown_table([_HEADINGS, *map(cells_of, sheet.lines)])
    picture = ["", f"![{sheet.title}]({sheet.picture})"] if sheet.picture else []
    return "\n".join([f"### {sheet.name}: {sheet.title}", "", sheet.caption, "", *rows, *picture]) + "\n"


def csv_of(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


_LATEX = {
    "\\": r"\textbackslash{}", "±": r"$\pm$", "—": "---", "∞": r"$\infty$", "κ": r"$\kappa$", "μ": r"$\mu$", "&": r"\&",
    "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


def _tex(words: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in words)


def latex(sheet: Sheet) -> str:
    """Return a table in LaTeX, with booktabs."""
    rows = [" & ".join(map(_tex, cells_of(line))) + r" \\" for line in sheet.lines]
    picture = [rf"  \includegraphics[width=\linewidth]{{{sheet.picture}}}\\"] if sheet.picture else []
    return "\n".join([
        r"% \usepackage{booktabs, graphicx}", r"\begin{table}", r"  \centering", *picture,
        rf"  \caption{{{_tex(sheet.title)}. {_tex(sheet.caption)}}}", rf"  \label{{{sheet.name}}}",
        r"  \begin{tabular}{llrrrrlr}", r"  \toprule", "  " + " & ".join(map(_tex, _HEADINGS)) + r" \\", r"  \midrule",
        *(f"  {row}" for row in rows), r"  \bottomrule", r"  \end{tabular}", r"\end{table}",
    ]) + "\n"  # fmt: skip


def _section(sheet: Sheet) -> Html:
    picture = tag("p", tag("img", src=sheet.picture, alt=sheet.title)) if sheet.picture else None
    head = tag("thead", tag("tr", [tag("th", words, scope="col") for words in _HEADINGS]))
    rows = [tag("tr", tag("th", line.row, scope="row"), list(map(_cell, cells_of(line)[1:]))) for line in sheet.lines]
    table = tag("table", lines(head, tag("tbody", lines(*rows))))
    title = tag("h2", f"{sheet.title} ", tag("small", tag("code", sheet.name)))
    scrolled = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=sheet.title)
    return tag("section", lines(title, tag("p", sheet.caption), picture, scrolled), id=sheet.file)


def _cell(words: str) -> Html:
    told, bracket, mark = words.partition(" [")
    return tag("td", told, [" ", tag("span", f"[{mark}", class_="reduced")] if bracket else None)


def page(title: str, sheets: Sequence[Sheet], words: str = "", others: Sequence[str] = ()) -> str:
    """Return an HTML page of several tables; it loads nothing from elsewhere.

    `words` introduce all tables; `others` are neighbouring files, without the suffix, of what the page does not show.
    """
    body: list[Child] = [tag("h1", title), tag("p", words) if words else None]
    if others:
        body.append(tag("p", "Other calls: ", _dotted([tag("a", name, href=f"{name}.html") for name in others])))
    if len(sheets) > 1:
        body.append(tag("nav", _dotted([tag("a", sheet.name, href=f"#{sheet.file}") for sheet in sheets])))
    return document(title, lines(*body, *map(_section, sheets)), tag("style", Html(_STYLE)))


def _dotted(links: Sequence[Html]) -> Html:
    return Html(" · ".join(links))


FORMATS: dict[str, Callable[[Sheet], str]] = {
    "txt": text, "md": markdown, "csv": lambda sheet: csv_of([CSV_HEADINGS, *map(cells_of, sheet.lines)]), "tex": latex,
    "html": lambda sheet: page(sheet.name, [sheet]),
}  # fmt: skip
