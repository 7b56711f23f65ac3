"""Coefficients of the expansion in `pcl.mathematics.special`, computed in exact rational arithmetic."""

from fractions import Fraction
from functools import lru_cache
from itertools import zip_longest

# With 12 terms from order 16 on, the expansion's error is 9e-15 in log I_v and 1.1e-13 relative in r_v (measured
# against mpmath over x from 0.01 to 1000, where it is largest).
_N_TERMS = 12
MIN_ORDER = 16

_Polynomial = list[Fraction]


def expansion_series(v: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the coefficients of order v, as constants that torch.compile does not trace."""
    return _cached_series(v)


# Set by torch.compiler.assume_constant_result; the decorator itself would import the compiler, which takes a second.
expansion_series._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=256)
def _cached_series(v: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return coefficients in t of Q = sum_k b_k(t) v^(1-k), and of E = sum_k (d_k(t) - d_k(1)) v^-k with E(1) = 0."""
    ratio_terms, log_terms = _polynomials()
    order = Fraction(v)

    def collect(terms: list[_Polynomial], first_power: int) -> _Polynomial:
        total = [Fraction(0)] * max(len(term) for term in terms)
        for k, term in enumerate(terms):
            for i, c in enumerate(term):
                total[i] += c / order ** (k + first_power)
        return total

    log_series = collect(log_terms, 1)
    log_series[0] -= sum(log_series)
    return tuple(float(c) for c in collect(ratio_terms, 0)), tuple(float(c) for c in log_series)


@lru_cache(maxsize=1)
def _polynomials() -> tuple[list[_Polynomial], list[_Polynomial]]:
    """Return the polynomials b_1..b_n and d_1..d_n in t.

    Put w = v/t + sum_k (1-t^2) b_k v^(1-k) into x w' + w^2 = v^2/t^2, where x dt/dx = -t (1-t^2). Order by order:
    b_1 = -1/2, and b_k = t/2 ( t [(1-t^2) b_{k-1}]' - (1-t^2) sum_{i<k} b_i b_{k-i} ).
    Integrating w/x gives the terms of log I_v: d_k' = -b_{k+1}/t with d_k(0) = 0.
    """
    one_minus_t2 = [Fraction(1), Fraction(0), Fraction(-1)]
    b: list[_Polynomial] = [[Fraction(-1, 2)]]
    for k in range(2, _N_TERMS + 2):
        product = _times(one_minus_t2, b[-1])
        inner = [i * c for i, c in enumerate(product)]  # t times the derivative
        for i in range(1, k):
            terms = _times(one_minus_t2, _times(b[i - 1], b[k - i - 1]))
            inner = [c - e for c, e in zip_longest(inner, terms, fillvalue=Fraction(0))]
        b.append([Fraction(0)] + [c / 2 for c in inner])
    d = [[Fraction(0)] + [-c / (i + 1) for i, c in enumerate(term[1:])] for term in b[1:]]
    return b[:_N_TERMS], d


def _times(p: _Polynomial, q: _Polynomial) -> _Polynomial:
    product = [Fraction(0)] * (len(p) + len(q) - 1)
    for i, c in enumerate(p):
        for j, e in enumerate(q):
            product[i + j] += c * e
    return product
