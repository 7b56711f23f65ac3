"""Numbers as tables and charts show them: with the decimals that their errors justify, and a dash for None."""

import math

from pcl.metrics.undefined import told

MISSING = "\u2013"  # an en dash
MINUS = "\u2212"
_PLAIN, _LARGE = 5e-4, 1e4  # between them, three decimals show a number
_MOST_DECIMALS = 6


def number(value: float | None) -> str:
    """Format a number: three decimals, or three digits where it is very large or small; a dash for None.

    Example:
        >>> number(0.8213), number(125.02), number(1.2e14), number(float("nan")), number(-5e-05), number(None)
        ('0.821', '125.020', '1.2e+14', 'undefined', '−5e-05', '–')
    """
    if value is None:
        return MISSING
    is_plain = value == 0 or _PLAIN <= abs(value) < _LARGE
    text = told(value, ".3f" if is_plain else ".3g")
    return f"{MINUS}{text[1:]}" if text.startswith("-") else text


def fixed(value: float, error: float) -> str:
    """Format a number with as many decimals as its error: three, or those that show the first digit of a small one.

    Example:
        >>> fixed(0.000366, 0.003), fixed(0.82134, 4.1e-05), fixed(-0.0001, 0.02), fixed(0.5, float("nan"))
        ('0.000', '0.82134', '0.000', '0.500')
    """
    if not error > 0:
        return number(value)  # the error says nothing about decimals
    if not max(abs(value), error) < _LARGE or error < 10**-_MOST_DECIMALS:
        return number(value)
    n_decimals = max(3, -math.floor(math.log10(error)))
    text = f"{value:.{n_decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def plus_minus(value: float | None, error: float) -> str:
    """Format a mean with its standard error, where there is one.

    Example:
        >>> plus_minus(0.000366, 0.003), plus_minus(0.000366, float("nan")), plus_minus(3e-12, 2e-11)
        ('0.000 ± 0.003', '0.000366', '3e-12 ± 2e-11')
    """
    if value is None or math.isnan(error) or not math.isfinite(value):
        return number(value)
    return f"{fixed(value, error)} ± {fixed(error, error)}"
