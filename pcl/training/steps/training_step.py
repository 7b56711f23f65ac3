"""One training step: data, posteriors, losses. `pcl.training.steps.stepper` repeats it.

Axes: R runs, B anchors, N negatives, D dim.
"""

from typing import cast

import torch
from torch import Tensor, nn

from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.encoders import Encoder
from pcl.losses import Loss
from pcl.losses.base import require_count
from pcl.tasks import Batch, Negatives, Task


class TrainingStep:
    """A training step: data, posteriors and the mean loss of every run; `seed` seeds all randomness in training."""

    def __init__(self, config: RunConfig, task: Task, encoder: Encoder, device: torch.device, seed: int) -> None:
        self.config = config
        self.task = task.to(device)
        self.encoder = encoder.to(device)
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)
        # The kernels' random numbers are functions of (seed, step).
        self.seed_and_step = torch.tensor([seed, 0], device=device)
        self.trained, self.source = Trained.JOINT, Negatives.DRAWN
        self.losses = self._losses()

    def enter(self, trained: Trained, source: Negatives) -> list[nn.Parameter]:
        """Prepare for a phase; return the parameters that it trains."""
        self.trained, self.source = trained, source
        for run in range(len(self.losses)):
            self._loss_of(run).expect(source)
        has_mu, has_kappa = trained is not Trained.KAPPA, trained is not Trained.MU
        parts = (
            (has_mu, list(self.encoder.mu_parameters())),
            (has_kappa, list(self.encoder.kappa_parameters())),
            (True, list(self.losses.parameters())),
        )
        # Each once, as one network may have both.
        wanted = {id(p): p for is_trained, parameters in parts if is_trained for p in parameters}
        for _, parameters in parts:
            for parameter in parameters:
                parameter.requires_grad_(id(parameter) in wanted)
                parameter.grad = None
        return list(wanted.values())

    def prepare(self) -> tuple[Tensor, ...]:
        """Return everything that does not depend on trained parameters, first the inputs, (R, 2 B + negatives, ...).

        Where positives are among the negatives, the inputs are (R, B + negatives, ...), and their places come second.
        """
        training = self.config.training
        if self.source is Negatives.POOL:
            choices = self.task.draw_choices(training.batch_size, training.n_negatives, self.generator)
            if choices is not None:
                return torch.cat([choices.anchor, choices.candidates], dim=1), choices.chosen
        batch = self._drawn()
        return (torch.cat([batch.anchor, batch.positive, batch.negatives.flatten(1, 2)], dim=1),)

    def mean_losses(self, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return the mean loss of each run, (R,)."""
        return self.losses_of(*self._triple(self.encode(*prepared)))

    def encode(self, x: Tensor, *places: Tensor) -> VonMisesFisher:
        """Return posteriors (R, 2 B + negatives) of the result of `prepare`, as the phase trains on them."""
        posterior = self.encoder.training_posteriors(
            x, self.trained is not Trained.KAPPA, self.trained is not Trained.MU
        )
        if not places:
            return posterior
        (chosen,), n = places, self.config.training.batch_size
        all_places = torch.arange(x.shape[1], device=self.device).expand(len(x), -1)
        return gathered(posterior, torch.cat([all_places[:, :n], n + chosen, all_places[:, n:]], dim=1))

    def losses_of(self, anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher) -> Tensor:
        """Return the mean loss of each run, (R,), for posteriors with batches (R, B), (R, B) and (R, B or 1, N)."""
        triple = (anchor, positive, negatives)
        if self._is_run_by_run():
            runs = range(self.task.n_runs)
            each = [self._loss_of(run)(*(_run(d, run) for d in triple), generator=self.generator) for run in runs]
            return torch.stack(each).mean(-1)
        together = self._loss_of(0)(*(_merged(d) for d in triple), generator=self.generator)
        return together.view(anchor.batch_shape).mean(-1)

    def _triple(self, posterior: VonMisesFisher) -> tuple[VonMisesFisher, VonMisesFisher, VonMisesFisher]:
        """Return anchors, positives and negatives: batches (R, B), (R, B) and (R, B or 1, N)."""
        batch_size = self.config.training.batch_size
        n_runs, n_inputs = posterior.batch_shape
        parts = [batch_size, batch_size, n_inputs - 2 * batch_size]
        mus, kappas = posterior.mu.split(parts, dim=1), posterior.kappa.split(parts, dim=1)
        if self.source is Negatives.IN_BATCH:
            mu_n, kappa_n = mus[1].roll(-1, dims=1).unsqueeze(2), kappas[1].roll(-1, dims=1).unsqueeze(2)
        else:
            n = self.config.training.n_negatives
            mu_n, kappa_n = mus[2].view(n_runs, -1, n, posterior.dim), kappas[2].view(n_runs, -1, n)
        pairs = ((mus[0], kappas[0]), (mus[1], kappas[1]), (mu_n, kappa_n))
        anchor, positive, negatives = (
            VonMisesFisher(mu, kappa, validate_args=False, law=posterior.law) for mu, kappa in pairs
        )
        return anchor, positive, negatives

    def _losses(self) -> nn.ModuleList:
        """Return a loss per run if it has parameters, else one for all."""
        first = self.config.loss.build()
        n_losses = self.task.n_runs if list(first.parameters()) else 1
        return nn.ModuleList([first, *(self.config.loss.build() for _ in range(n_losses - 1))]).to(self.device)

    def set_chunk_size(self, chunk_size: int) -> None:
        """Bound the similarities that sampling losses hold at once."""
        require_count("chunk_size", chunk_size)
        for run in range(len(self.losses)):
            self._loss_of(run).chunk_size = chunk_size

    def use_tables(self) -> None:
        """Let losses take expected similarities from tables in float32."""
        for run in range(len(self.losses)):
            self._loss_of(run).has_tables = True

    def learned_numbers(self) -> list[dict[str, float]]:
        """Return the numbers that each run's loss has learned, by name."""
        return [self._loss_of(run).learned_numbers() for run in range(self.task.n_runs)]

    def _drawn(self) -> Batch:
        training = self.config.training
        return self.task.draw(training.batch_size, self.source, training.n_negatives, self.generator)

    def _loss_of(self, run: int) -> Loss:
        return cast(Loss, self.losses[run if len(self.losses) > 1 else 0])

    def _is_run_by_run(self) -> bool:
        """Return whether each run needs its own call: own parameters, negatives shared within a run, rolled ones."""
        if self.task.n_runs == 1:
            return False
        return len(self.losses) > 1 or self.source.are_common or self._loss_of(0).mixes_anchors


def gathered(d: VonMisesFisher, places: Tensor) -> VonMisesFisher:
    """Return the distributions at places (R, n) of a batch (R, B)."""
    mu = d.mu.gather(1, places.unsqueeze(-1).expand(-1, -1, d.dim))
    return VonMisesFisher(mu, d.kappa.gather(1, places), validate_args=False, law=d.law)


def _merged(d: VonMisesFisher) -> VonMisesFisher:
    """Return the distribution with runs as part of the batch: (R, B, ...) -> (R B, ...)."""
    return VonMisesFisher(d.mu.flatten(0, 1), d.kappa.flatten(0, 1), validate_args=False, law=d.law)


def _run(d: VonMisesFisher, run: int) -> VonMisesFisher:
    return VonMisesFisher(d.mu[run], d.kappa[run], validate_args=False, law=d.law)
