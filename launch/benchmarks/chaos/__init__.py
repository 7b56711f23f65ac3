"""Randomized fault runner: small studies, one fault at a random moment of each, then `--resume` and `launch/verify.py`.

A round is sound if its study then equals an undisturbed one, bit for bit, and none of its processes is left.
"""

from launch.benchmarks import Row


def measure(*, seed: int, minutes: int, number: int | None) -> list[Row]:
    """Run the rounds of a seed for some minutes, or only one of them; print each round and the table."""
    from launch.testbed.forks import get_ready  # noqa: PLC0415  bench.py -h answers at once

    get_ready()  # before the next line imports torch
    from launch.benchmarks.chaos.rounds import run_rounds  # noqa: PLC0415  bench.py -h answers at once

    return run_rounds(seed, 60.0 * minutes, number)
