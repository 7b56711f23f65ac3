"""The main command. The search service is not here yet: this evaluates the losses on a small grid of sample counts."""

import argparse
import itertools
import math
import time

from launch.command import run, say

NOTICE = """\
pcl has no search service yet: no trials are scheduled, nothing is trained or recorded (launch/train.py trains one
configuration). This runs the losses on a grid of Monte-Carlo samples and negatives over synthetic posteriors (D = 10,
kappa 16 to 32; the modes of positive pairs are vMF(20) apart, those of negatives uniform). Watch MCInfoNCE's bias
shrink as the samples grow.
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="grid.py", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of posteriors and samples (default: 0)")
    arguments = parser.parse_args()
    if not 0 <= arguments.seed < 2**63:
        raise ValueError(f"`0 <= --seed < 2^63` must hold, but got {arguments.seed}.")
    say(NOTICE)

    import torch  # noqa: PLC0415  -h answers at once

    from pcl.distributions import SphereUniform, VonMisesFisher  # noqa: PLC0415
    from pcl.losses import HIB, Loss, MCInfoNCE  # noqa: PLC0415

    generator = torch.Generator().manual_seed(arguments.seed)
    batch_size, dim = 256, 10

    def posterior(modes: torch.Tensor) -> VonMisesFisher:
        return VonMisesFisher(modes, 16 + 16 * torch.rand(modes.shape[:-1], generator=generator))

    anchors = posterior(SphereUniform(dim).sample((batch_size,), generator))
    positives = posterior(VonMisesFisher(anchors.mu, 20.0).sample(generator=generator))
    say(f"{'loss':<14}{'n_negatives':>12}{'n_samples':>11}{'mean loss':>11}{'s.e.':>8}{'ms':>8}")
    cells = list(itertools.product((1, 32), (1, 4, 16, 64, 256, 512)))
    start = time.perf_counter()
    for n_negatives, n_samples in cells:
        negatives = posterior(SphereUniform(dim).sample((batch_size, n_negatives), generator))
        losses: dict[str, Loss] = {
            "mc_info_nce": MCInfoNCE.Config(n_samples=n_samples).build(),
            "hib": HIB.Config(n_samples=n_samples).build(),
        }
        for name, loss in losses.items():
            begun = time.perf_counter()
            with torch.no_grad():
                values = loss(anchors, positives, negatives, generator=generator)
            error = values.std().item() / math.sqrt(batch_size)
            spent = 1e3 * (time.perf_counter() - begun)
            say(f"{name:<14}{n_negatives:>12}{n_samples:>11}{values.mean().item():>11.4f}{error:>8.4f}{spent:>8.1f}")
    say(f"{2 * len(cells)} cells in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    run(main)
