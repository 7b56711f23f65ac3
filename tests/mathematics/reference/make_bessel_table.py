"""Writes bessel.csv beside this file: log C_D, A_D and A_D' at 60 digits from mpmath. Run it as a script.

Every kappa is a float32 number, so that one table serves float32 and float64. Values are stored with 25 digits.
"""

import csv
from pathlib import Path

import mpmath as mp
import numpy as np

DIMS = (2, 3, 4, 5, 7, 8, 10, 16, 31, 32, 33, 34, 35, 36, 40, 64, 100, 128, 256, 512, 1024, 2048, 4095, 4096)
# Far below, around and far above the dimension, where each method of evaluation has its weak spot.
RATIOS = (1e-4, 1e-2, 0.1, 0.3, 0.7, 1.0, 1.4, 3.0, 10.0, 100.0, 1e4)
KAPPAS = (1e-6, 1e-3, 0.5, 1.0, 4.0, 11.0, 16.0, 20.0, 32.0, 100.0, 500.0, 2000.0, 1e4, 1e5, 1e6, 1e7, 1e8)


def row(dim: int, kappa: float) -> list[str]:
    """One line of the table."""
    x, v = mp.mpf(kappa), mp.mpf(dim) / 2 - 1
    bessel, above = (mp.besseli(order, x, maxterms=10**8) for order in (v, v + 1))
    log_c = v * mp.log(x) - (v + 1) * mp.log(2 * mp.pi) - mp.log(bessel)
    ratio = above / bessel
    slope = 1 - ratio**2 - (dim - 1) / x * ratio
    return [str(dim), repr(kappa), *(mp.nstr(value, 25) for value in (log_c, ratio, slope))]


def main() -> None:
    """Write the table beside this script."""
    mp.mp.dps = 60
    with (Path(__file__).parent / "bessel.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["dim", "kappa", "log_c", "ratio", "slope"])
        for dim in DIMS:
            kappas = sorted({float(np.float32(k)) for k in (*KAPPAS, *(dim * r for r in RATIOS))})
            writer.writerows(row(dim, kappa) for kappa in kappas if kappa <= 1e8)


if __name__ == "__main__":
    main()
