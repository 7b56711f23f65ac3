"""One training step, and how steps are repeated: plainly, or as a CUDA graph with fused kernels.

Axes: R runs, B anchors, N negatives, D dim.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pcl.config import RunConfig
from pcl.distributions import VonMisesFisher
from pcl.encoders import Encoder, KappaPhase, ResNetEncoder
from pcl.losses import ELK, HIB, ElkNegatives, Loss, MCInfoNCE
from pcl.randomness import mixed_seed
from pcl.schedule import Trained
from pcl.tasks import Negatives, Task


class TrainingStep:
    """What a step computes: data, posteriors and the mean loss of every run.

    Args:
        config: Of the run.
        task: Source of data.
        encoder: What is trained.
        device: Where.
        seed: Of everything random in training.
    """

    def __init__(self, config: RunConfig, task: Task, encoder: Encoder, device: torch.device, seed: int) -> None:
        self.config = config
        self.task = task.to(device)
        self.encoder = encoder.to(device)
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)
        # Functions of (seed, step) are the kernels' random numbers.
        self.seed_and_step = torch.tensor([seed, 0], device=device)
        self.trained, self.source = Trained.JOINT, Negatives.DRAWN
        self.losses = self._losses()

    def enter(self, trained: Trained, source: Negatives) -> list[nn.Parameter]:
        """Prepare for a phase; returns what it trains."""
        self.trained, self.source = trained, source
        for loss in self.losses:
            if isinstance(loss, ELK):
                config = self.config.loss_with(source)
                assert isinstance(config, ELK.Config)
                loss.config = config
        has_mu, has_kappa = trained is not Trained.KAPPA, trained is not Trained.MU
        parts = (
            (has_mu, list(self.encoder.mu_parameters())),
            (has_kappa, list(self.encoder.kappa_parameters())),
            (True, list(self.losses.parameters())),
        )
        # Once each, for one network may have both.
        wanted = {id(p): p for is_trained, parameters in parts if is_trained for p in parameters}
        for _, parameters in parts:
            for parameter in parameters:
                parameter.requires_grad_(id(parameter) in wanted)
                parameter.grad = None
        return list(wanted.values())

    def prepare(self) -> tuple[Tensor, ...]:
        """What a step needs and no trained parameter decides; first the inputs, (R, 2 B + negatives, ...)."""
        training = self.config.training
        batch = self.task.draw(training.batch_size, self.source, training.n_negatives, self.generator)
        return (torch.cat([batch.anchor, batch.positive, batch.negatives.flatten(1, 2)], dim=1),)

    def mean_losses(self, prepared: tuple[Tensor, ...]) -> Tensor:
        """Mean loss of each run, (R,)."""
        return self.losses_of(*self._triple(self.encode(*prepared)))

    def encode(self, x: Tensor) -> VonMisesFisher:
        """Posteriors of inputs; where one network has mu and kappa, the gradient passes through what a phase trains."""
        posterior = self.encoder(x)
        if not isinstance(self.encoder, ResNetEncoder):
            return posterior
        is_mu_fixed = self.encoder.config.kappa_phase is KappaPhase.MU_FIXED and self.trained is Trained.KAPPA
        mu = posterior.mu.detach() if is_mu_fixed else posterior.mu
        kappa = posterior.kappa.detach() if self.trained is Trained.MU else posterior.kappa
        return VonMisesFisher(mu, kappa, validate_args=False, law=posterior.law)

    def losses_of(self, anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher) -> Tensor:
        """Mean loss of each run, (R,), of posteriors with batches (R, B), (R, B) and (R, B or 1, N)."""
        triple = (anchor, positive, negatives)
        if self._is_run_by_run():
            runs = range(self.task.n_runs)
            each = [self._loss_of(run)(*(_run(d, run) for d in triple), generator=self.generator) for run in runs]
            return torch.stack(each).mean(-1)
        together = self._loss_of(0)(*(_merged(d) for d in triple), generator=self.generator)
        return together.view(anchor.batch_shape).mean(-1)

    def _triple(self, posterior: VonMisesFisher) -> tuple[VonMisesFisher, VonMisesFisher, VonMisesFisher]:
        """Anchors, positives and negatives: batches (R, B), (R, B) and (R, B or 1, N)."""
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
        """A loss per run where it has parameters, else one for all."""
        first = self.config.loss.build()
        n_losses = self.task.n_runs if list(first.parameters()) else 1
        return nn.ModuleList([first, *(self.config.loss.build() for _ in range(n_losses - 1))]).to(self.device)

    def set_chunk_size(self, chunk_size: int) -> None:
        """Bound the similarities that sampling losses hold at once."""
        for loss in self.losses:
            if isinstance(loss, MCInfoNCE | HIB):
                loss.chunk_size = chunk_size

    def _loss_of(self, run: int) -> Loss:
        loss = self.losses[run if len(self.losses) > 1 else 0]
        assert isinstance(loss, Loss)
        return loss

    def _is_run_by_run(self) -> bool:
        """Whether runs cannot share one call: parameters of their own, negatives shared within a run, rolled ones."""
        if self.task.n_runs == 1:
            return False
        loss = self.losses[0]
        is_rolled = isinstance(loss, ELK) and loss.config.negatives is ElkNegatives.ROLLED_POSITIVES
        return len(self.losses) > 1 or self.source is Negatives.SHARED or is_rolled


class Stepper(ABC):
    """Repeats a step."""

    slice_length: ClassVar[int]  # batches that take about a second or less

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        self._loss_sums = torch.zeros(step.task.n_runs, device=step.device)
        self._n_summed = 0

    @abstractmethod
    def enter(self, trained: Trained, source: Negatives) -> None:
        """Begin a phase with a fresh optimiser."""

    @abstractmethod
    def advance(self, n_batches: int, lr: float) -> None:
        """Train so many batches."""

    def mean_losses(self) -> list[float]:
        """Mean loss of each run since the last call."""
        means = (self._loss_sums / max(1, self._n_summed)).tolist()
        self._loss_sums.zero_()
        self._n_summed = 0
        return [float(mean) for mean in means]

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next batch depends on."""
        return {
            "encoder": self.step.encoder.state_dict(),
            "losses": self.step.losses.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "kind": self._kind(),
            "generator": self.step.generator.get_state(),
            "seed_and_step": self.step.seed_and_step,
            "loss_sums": self._loss_sums,
            "n_summed": self._n_summed,
        }

    def resume(self, trained: Trained, source: Negatives, state: dict[str, Any]) -> None:
        """Go back to where `state_dict` was called, in this phase.

        Parameters come first: what a phase prepares from those that it leaves alone, it prepares on entering.
        """
        self.step.encoder.load_state_dict(state["encoder"])
        self.step.losses.load_state_dict(state["losses"])
        self.enter(trained, source)
        self._adopt(state["optimizer"])
        self.step.seed_and_step.copy_(state["seed_and_step"])
        if state["kind"] == self._kind():
            self.step.generator.set_state(state["generator"])
        else:  # another device's state means nothing here: go on with fresh numbers
            self.step.generator.manual_seed(mixed_seed(*state["seed_and_step"].tolist(), state["kind"]))
        self._loss_sums.copy_(state["loss_sums"])
        self._n_summed = state["n_summed"]

    def _adopt(self, state: dict[str, Any]) -> None:
        """Take over an optimiser's state, but not how it was computed elsewhere."""
        for ours, theirs in zip(self.optimizer.param_groups, state["param_groups"], strict=True):
            theirs.update({name: ours[name] for name in ("lr", "foreach", "fused", "capturable")})
        self.optimizer.load_state_dict(state)

    def _kind(self) -> str:
        return f"{type(self).__name__} on {self.step.device.type}"

    optimizer: torch.optim.Optimizer


class PlainStepper(Stepper):
    """One step after the other, anywhere."""

    slice_length = 25

    def enter(self, trained: Trained, source: Negatives) -> None:
        """Begin a phase with a fresh optimiser."""
        self.optimizer = torch.optim.Adam(self.step.enter(trained, source), lr=1.0, fused=True)

    def advance(self, n_batches: int, lr: float) -> None:
        """Train so many batches."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        for _ in range(n_batches):
            losses = self.step.mean_losses(self.step.prepare())
            self.optimizer.zero_grad()
            losses.sum().backward()
            self.optimizer.step()
            self._loss_sums += losses.detach()
            self._n_summed += 1
        if self.step.device.type == "cuda":
            torch.cuda.synchronize(self.step.device)


class GraphStepper(Stepper):
    """The step captured once per phase and replayed: no launch of single kernels, and no wait within a slice."""

    slice_length = 1000

    def __init__(self, step: TrainingStep) -> None:
        super().__init__(step)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._prepared: tuple[Tensor, ...] = ()  # what the graph trains on; it must live as long

    def enter(self, trained: Trained, source: Negatives) -> None:
        """Begin a phase with a fresh optimiser."""
        self._graph = None
        parameters = self.step.enter(trained, source)
        self._lr = torch.zeros((), device=self.step.device)
        self.optimizer = torch.optim.Adam(parameters, lr=self._lr, fused=True, capturable=True)

    def advance(self, n_batches: int, lr: float) -> None:
        """Train so many batches; returns when the device has."""
        self._lr.fill_(lr)
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr  # loading a state replaces it
        remaining = n_batches
        if self._graph is None:
            remaining -= self._capture(n_batches)
        assert self._graph is not None or remaining == 0
        for _ in range(remaining):
            self._graph.replay()  # type: ignore[union-attr]
        torch.cuda.synchronize(self.step.device)
        self._n_summed += n_batches

    def _capture(self, n_batches: int) -> int:
        """Train a few batches outside of the graph, as torch asks for, then capture one; returns how many.

        While a batch is trained on, the next one is prepared beside it.
        """
        n_warm_up = min(3, n_batches)
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            main, aside = torch.cuda.Stream(self.step.device), torch.cuda.Stream(self.step.device)
            main.wait_stream(torch.cuda.current_stream(self.step.device))
            with torch.cuda.stream(main):
                for _ in range(n_warm_up):
                    self._train(self.step.prepare())
                    self._count()
                prepared = self.step.prepare()
                self._count()
                self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.current_stream(self.step.device).wait_stream(main)
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self.step.generator)
            with torch.cuda.graph(graph, stream=main):
                aside.wait_stream(main)
                with torch.cuda.stream(aside):
                    following = self.step.prepare()
                self._train(prepared)
                main.wait_stream(aside)
                for place, value in zip(prepared, following, strict=True):
                    place.copy_(value)
                self._count()
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
        self._graph, self._prepared = graph, prepared
        return n_warm_up

    def _train(self, prepared: tuple[Tensor, ...]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.step.mean_losses(prepared)
        losses.sum().backward()
        self.optimizer.step()
        self._loss_sums += losses.detach()

    def _count(self) -> None:
        """Move on to the kernels' next random numbers."""
        self.step.seed_and_step[1] += 1


def _merged(d: VonMisesFisher) -> VonMisesFisher:
    """The runs as part of the batch: (R, B, ...) -> (R B, ...)."""
    return VonMisesFisher(d.mu.flatten(0, 1), d.kappa.flatten(0, 1), validate_args=False, law=d.law)


def _run(d: VonMisesFisher, run: int) -> VonMisesFisher:
    return VonMisesFisher(d.mu[run], d.kappa[run], validate_args=False, law=d.law)
