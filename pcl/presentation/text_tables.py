"""Tables of text: in columns for a terminal, and in Markdown."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose columns are as wide as their widest cell.

    Example:
        >>> aligned([["", "mean"], ["first", "0.5"]])
        ['       mean', 'first  0.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    r"""Return the lines of a Markdown table whose first row is its head.

    Example:
        >>> markdown_table([["", "mean"], ["a|b", "0.5"]])
        ['|  | mean |', '| --- | --- |', '| a\\|b | 0.5 |']
    """
    head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [head, "| " + " | ".join("---" for _ in rows[0]) + " |", *body]
