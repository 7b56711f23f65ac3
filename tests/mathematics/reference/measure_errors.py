"""Prints the worst relative errors of `special`: `python -m tests.mathematics.reference.measure_errors`."""

import torch

from pcl.mathematics.special import bessel_ratio, bessel_ratio_slope, log_vmf_normalizer
from tests.mathematics.test_special import REFERENCE, worst_relative_error


def main() -> None:
    """One line a quantity and dtype."""
    functions = {"log_c": log_vmf_normalizer, "ratio": bessel_ratio, "slope": bessel_ratio_slope}
    for name, function in functions.items():
        for dtype in (torch.float64, torch.float32):
            worst = max(
                worst_relative_error(
                    function(torch.tensor([float(row["kappa"]) for row in rows], dtype=dtype), dim),
                    [row[name] for row in rows],
                )
                for dim, rows in REFERENCE.items()
            )
            print(f"{name:<6} {dtype!s:<14} {worst:.1e}")


if __name__ == "__main__":
    main()
