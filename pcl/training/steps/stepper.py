"""Repetition of a training step: one after the other, or captured as a CUDA graph and replayed.

Axes: R runs.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pcl.config.schedule import Optimizer, Trained
from pcl.mathematics.random_streams import mixed_seed
from pcl.tasks import Negatives
from pcl.training.steps.backward import fast_backward
from pcl.training.steps.optimizers import Adam, AdamW
from pcl.training.steps.training_step import TrainingStep


class Stepper(ABC):
    """A repeated training step."""

    slice_length: ClassVar[int]  # batches that take a fraction of a second

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        self._loss_sums = torch.zeros(step.task.n_runs, device=step.device)
        self._n_summed = 0

    @abstractmethod
    def enter(self, trained: Trained, source: Negatives) -> None:
        """Start a phase with a fresh optimiser."""

    @abstractmethod
    def start(self, n_batches: int, lr: float) -> None:
        """Enqueue batches to train on the device; on a CPU they are trained when this returns."""

    def wait(self) -> None:
        """Wait until the device has trained all enqueued batches of the current stream."""
        if self.step.device.type == "cuda":
            torch.cuda.current_stream(self.step.device).synchronize()

    def advance(self, n_batches: int, lr: float) -> None:
        """Train a number of batches."""
        self.start(n_batches, lr)
        self.wait()

    def mean_losses(self) -> list[float]:
        """Return the mean loss of each run since the last call."""
        means = (self._loss_sums / max(1, self._n_summed)).tolist()
        self._loss_sums.zero_()
        self._n_summed = 0
        return [float(mean) for mean in means]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next batch depends on, but for the bank and the batch that a GPU has prepared."""
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
        """Return to the state of `state_dict`, in this phase.

        A phase is entered with parameters and random state loaded: it may encode inputs that it draws.
        """
        self.step.encoder.load_state_dict(state["encoder"])
        self.step.losses.load_state_dict(state["losses"])
        self.step.seed_and_step.copy_(state["seed_and_step"])
        if state["kind"] == self._kind():
            self.step.generator.set_state(state["generator"])
        else:  # the random state of another device cannot be used: continue with fresh numbers
            self.step.generator.manual_seed(mixed_seed(*state["seed_and_step"].tolist(), state["kind"]))
        self.enter(trained, source)
        self._adopt(state["optimizer"])
        self._loss_sums.copy_(state["loss_sums"])
        self._n_summed = state["n_summed"]

    def _adopt(self, state: dict[str, Any]) -> None:
        """Load an optimiser's state, but not the options of its implementation elsewhere."""
        for ours, theirs in zip(self.optimizer.param_groups, state["param_groups"], strict=True):
            theirs.update({name: ours[name] for name in ("lr", "foreach", "fused", "capturable")})
        self.optimizer.load_state_dict(state)

    def _fresh(self, parameters: list[nn.Parameter], lr: float | Tensor, is_captured: bool) -> torch.optim.Optimizer:
        """Return a new optimiser as configured."""
        is_adamw = self.step.config.training.optimizer is Optimizer.ADAMW
        kind = AdamW if is_adamw else Adam
        return kind(parameters, lr=lr, fused=True, capturable=is_captured)

    def _kind(self) -> str:
        return f"{type(self).__name__} on {self.step.device.type}"

    optimizer: torch.optim.Optimizer


class PlainStepper(Stepper):
    """A stepper that runs one step after the other, on any device."""

    slice_length = 25

    def enter(self, trained: Trained, source: Negatives) -> None:
        self.optimizer = self._fresh(self.step.enter(trained, source), lr=1.0, is_captured=False)

    def start(self, n_batches: int, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        for _ in range(n_batches):
            losses = self.step.mean_losses(self.step.prepare())
            self.optimizer.zero_grad()
            with fast_backward(self.step.device):
                losses.sum().backward()
            self.optimizer.step()
            self._loss_sums += losses.detach()
            self._n_summed += 1


class GraphStepper(Stepper):
    """A stepper that captures the step once per phase and replays it, without synchronisation within a slice."""

    slice_length = 200

    def __init__(self, step: TrainingStep) -> None:
        super().__init__(step)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._prepared: tuple[Tensor, ...] = ()  # the graph's input, which must live as long as the graph

    def enter(self, trained: Trained, source: Negatives) -> None:
        self._graph = None
        parameters = self.step.enter(trained, source)
        self._lr = torch.zeros((), device=self.step.device)
        self.optimizer = self._fresh(parameters, self._lr, is_captured=True)

    def start(self, n_batches: int, lr: float) -> None:
        """Capture a batch at the start of a phase; the rest are replays, without synchronisation."""
        self._lr.fill_(lr)
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr  # loading a state replaces it
        remaining = n_batches
        if self._graph is None:
            remaining -= self._capture(n_batches)
        assert self._graph is not None or remaining == 0
        for _ in range(remaining):
            self._graph.replay()  # type: ignore[union-attr]
        self._n_summed += n_batches

    def _capture(self, n_batches: int) -> int:
        """Train a few batches outside the graph, as torch requires, then capture one; return how many were trained.

        While one batch is trained on, the next one is prepared on another stream.
        """
        n_warm_up = min(3, n_batches)
        before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = True
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
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark = before
        self._graph, self._prepared = graph, prepared
        return n_warm_up

    def _train(self, prepared: tuple[Tensor, ...]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.step.mean_losses(prepared)
        losses.sum().backward()
        self.optimizer.step()
        self._loss_sums += losses.detach()

    def _count(self) -> None:
        """Advance to the kernels' next random numbers."""
        self.step.seed_and_step[1] += 1
