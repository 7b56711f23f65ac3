"""A table of lines as text, Markdown, CSV, LaTeX (booktabs) and HTML."""

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcl.studies.paper.comparison import Line

_HEADINGS = ("", "metric", "published", "ours", "seeds", "difference (s.e.)", "verdict")
CSV_HEADINGS = ("row", "metric", "published", "ours", "seeds", "difference_in_standard_errors", "verdict")
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
    """A table or figure as it is written.

    Attributes:
        name: Of the paper, such as tab:bench_results.
        title: What it shows.
        caption: How ours came about.
        lines: Its content.
        picture: File of the figure beside it; empty where there is none.
    """

    name: str
    title: str
    caption: str
    lines: Sequence[Line]
    picture: str = ""

    @property
    def file(self) -> str:
        """Its files' name, without the ending."""
        return self.name.replace(":", "-")


def cells_of(line: Line) -> tuple[str, ...]:
    """A line's cells, from left to right."""
    return (line.row, line.what, line.published, line.ours, line.seeds, line.difference, line.verdict)


def text(sheet: Sheet) -> str:
    """For a terminal."""
    rows = [_HEADINGS, *map(cells_of, sheet.lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    body = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    picture = [f"picture: {sheet.picture}"] if sheet.picture else []
    return "\n".join([f"{sheet.name}: {sheet.title}", sheet.caption, *body, *picture]) + "\n"


def markdown(sheet: Sheet) -> str:
    """For a README."""
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in map(cells_of, sheet.lines)]
    head = ["| " + " | ".join(_HEADINGS) + " |", "|" + "---|" * len(_HEADINGS)]
    picture = ["", f"![{sheet.title}]({sheet.picture})"] if sheet.picture else []
    return "\n".join([f"### {sheet.name}: {sheet.title}", "", sheet.caption, "", *head, *rows, *picture]) + "\n"


def comma_separated(sheet: Sheet) -> str:
    """For programs."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_HEADINGS)
    writer.writerows(cells_of(line) for line in sheet.lines)
    return file.getvalue()


_LATEX = {
    "\\": r"\textbackslash{}", "±": r"$\pm$", "—": "---", "∞": r"$\infty$", "κ": r"$\kappa$", "μ": r"$\mu$", "&": r"\&",
    "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


def _tex(words: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in words)


def latex(sheet: Sheet) -> str:
    """For a paper, with booktabs."""
    rows = [" & ".join(map(_tex, cells_of(line))) + r" \\" for line in sheet.lines]
    picture = [rf"  \includegraphics[width=\linewidth]{{{sheet.picture}}}\\"] if sheet.picture else []
    return "\n".join([
        r"% \usepackage{booktabs, graphicx}", r"\begin{table}", r"  \centering", *picture,
        rf"  \caption{{{_tex(sheet.title)}. {_tex(sheet.caption)}}}", rf"  \label{{{sheet.name}}}",
        r"  \begin{tabular}{llrrrrl}", r"  \toprule", "  " + " & ".join(map(_tex, _HEADINGS)) + r" \\", r"  \midrule",
        *(f"  {row}" for row in rows), r"  \bottomrule", r"  \end{tabular}", r"\end{table}",
    ]) + "\n"  # fmt: skip


def _section(sheet: Sheet) -> str:
    def cell(words: str) -> str:
        told, bracket, mark = html.escape(words).partition(" [")
        return f"<td>{told}{f' <span class=reduced>[{mark}</span>' if bracket else ''}</td>"

    head = "".join(f'<th scope="col">{html.escape(words)}</th>' for words in _HEADINGS)
    rows = "\n".join(
        f'<tr><th scope="row">{html.escape(line.row)}</th>{"".join(map(cell, cells_of(line)[1:]))}</tr>'
        for line in sheet.lines
    )
    picture = (
        f'<p><img src="{html.escape(sheet.picture)}" alt="{html.escape(sheet.title)}"></p>' if sheet.picture else ""
    )
    return (
        f'<section id="{html.escape(sheet.file)}"><h2>{html.escape(sheet.title)} <small><code>{html.escape(sheet.name)}'
        f"</code></small></h2>\n<p>{html.escape(sheet.caption)}</p>\n{picture}\n"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(sheet.title)}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div></section>"
    )


def page(title: str, sheets: Sequence[Sheet], words: str = "", others: Sequence[str] = ()) -> str:
    """One page of several; it asks nothing of any other machine.

    Args:
        title: Stands above.
        sheets: What it shows.
        words: What is said of all.
        others: Files beside it, without the ending, of what it does not show.
    """
    links = " · ".join(f'<a href="#{html.escape(s.file)}">{html.escape(s.name)}</a>' for s in sheets)
    body = "\n".join(_section(sheet) for sheet in sheets)
    nav = f"<nav>{links}</nav>" if len(sheets) > 1 else ""
    told = f"<p>{html.escape(words)}</p>" if words else ""
    if others:
        beside = " · ".join(f'<a href="{html.escape(name)}.html">{html.escape(name)}</a>' for name in others)
        told += f"\n<p>Of other calls: {beside}</p>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{html.escape(title)}</h1>\n{told}\n{nav}\n{body}\n</body></html>\n"
    )


FORMATS: dict[str, Callable[[Sheet], str]] = {
    "txt": text, "md": markdown, "csv": comma_separated, "tex": latex, "html": lambda sheet: page(sheet.name, [sheet]),
}  # fmt: skip
