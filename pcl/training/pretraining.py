"""Pretraining of the image encoder's backbone: a classifier of the training images that a set has outside its folds.

Images stay on the device as bytes; they are cropped and flipped there, without synchronisation within an epoch.

Axes: B images.
"""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pcl.config.schedule import warm_up_cosine
from pcl.data.augmentation import crop_and_flip, erase
from pcl.data.images import ImageSet
from pcl.data.weights import Weights
from pcl.encoders.resnet import classifier
from pcl.encoders.stem import Stem
from pcl.mathematics.random_streams import mixed_seed
from pcl.training.diverged import Diverged
from pcl.training.steps.backward import fast_backward
from pcl.training.steps.optimizers import SGD

_MOMENTUM, _WEIGHT_DECAY = 0.9, 1e-3
_WARM_UP = 0.15  # share of training
_BLOCK = 500  # images evaluated at once
_N_SMALL = 10_000  # training images below which batches are smaller


@dataclass(frozen=True)
class Recipe:
    """Settings of a pretraining."""

    width: int = 64  # channels of its first stage
    epochs: int = 100  # passes through the training images
    batch_size: int = 512  # images per step
    lr: float = 0.2  # highest learning rate of stochastic gradient descent with momentum
    seed: int = 0  # seed of weights, order, crops, flips and squares
    erased: int = 16  # side of a square that is erased in every image, in pixels; 0 for none

    def __post_init__(self) -> None:
        for name, least in (("width", 1), ("epochs", 1), ("batch_size", 2), ("seed", 0), ("erased", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name} >= {least}` must hold, but got {getattr(self, name)}.")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"`0 < lr < inf` must hold, but got {self.lr:g}.")

    @classmethod
    def suited(cls, data: ImageSet, width: int) -> "Recipe":
        """Return the default recipe; for few images, smaller batches and fewer epochs of whole images."""
        return cls(width, 24, 64, 0.05, erased=0) if len(data.train_images) < _N_SMALL else cls(width)


@dataclass(frozen=True)
class Epoch:
    """Progress of a pretraining."""

    epoch: int  # completed passes
    loss: float  # mean cross-entropy of the last pass
    accuracy: float  # share of that pass's images, cropped and flipped, that were classified correctly


class Pretraining:
    """A pretraining: iterate over its epochs, then take `weights`.

    It trains on the set's separate training images, which it must have, and evaluates on those with soft labels.
    """

    def __init__(self, data: ImageSet, recipe: Recipe, device: str | torch.device = "cpu") -> None:
        if not data.has_train:
            raise ValueError(f"Pretraining needs training images apart from the folds, which {data.name!r} lacks.")
        self.data, self.recipe, self.device = data, recipe, torch.device(device)
        self.batch_size = min(recipe.batch_size, len(data.train_images))
        self.n_batches = recipe.epochs * (len(data.train_images) // self.batch_size)
        self.batch = 0
        self.stem = Stem.of(data.side)
        seed = mixed_seed(recipe.seed, "pretraining/classifier")
        self.net = classifier(recipe.width, self.stem, len(data.classes), seed).to(self.device)
        self._mean, self._deviation = (tensor.to(self.device) for tensor in self.stem.byte_statistics())
        self._images, self._labels = data.train_images.to(self.device), data.train_labels.to(self.device)
        self._generator = torch.Generator(self.device).manual_seed(mixed_seed(recipe.seed, "pretraining"))
        self._optimizer = SGD(
            self.net.parameters(), lr=recipe.lr, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY, nesterov=True
        )
        if self.device.type == "cuda":
            self._capture()

    def __iter__(self) -> Iterator[Epoch]:
        """Train to the end; raises `Diverged` if the loss is not finite."""
        with self._threads():
            for epoch in range(1, self.recipe.epochs + 1):
                loss, accuracy = (self._pass() / (self.n_batches / self.recipe.epochs)).tolist()
                if not math.isfinite(loss):
                    raise Diverged(f"the loss of the pretraining is {loss} in epoch {epoch}; take a lower `--lr`")
                yield Epoch(epoch, loss, accuracy)

    def weights(self) -> Weights:
        """Return the current backbone and classification layer, with their accuracy on the evaluation images."""
        state, head = (
            {name: value.detach().cpu().contiguous().clone() for name, value in part.state_dict().items()}
            for part in self.net
        )
        recipe = self.recipe
        return Weights(
            self.stem.kind, recipe.width, self.data.name, self.data.fingerprint, self.accuracy(),
            recipe.epochs, self.batch_size, recipe.lr, recipe.seed, recipe.erased, state, head,
        )  # fmt: skip

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return the share of the evaluation images that get their own label."""
        self.net.eval()
        images, labels = self.data.images.split(_BLOCK), self.data.hard_labels.split(_BLOCK)
        right = [
            (self._logits(part.to(self.device)).argmax(1) == truth.to(self.device)).sum()
            for part, truth in zip(images, labels, strict=True)
        ]
        self.net.train()
        return int(torch.stack(right).sum()) / len(self.data.images)

    def _pass(self) -> Tensor:
        """Train one epoch; return the sums over its batches of loss and accuracy, (2,), without synchronisation."""
        order = torch.randperm(len(self._images), generator=self._generator, device=self.device)
        sums = torch.zeros(2, device=self.device)
        for chosen in order.split(self.batch_size)[: len(order) // self.batch_size]:
            sums += self.step(chosen)
        return sums

    def step(self, chosen: Tensor) -> Tensor:
        """Train on these images; return their mean loss and accuracy, (2,)."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.lr * warm_up_cosine((self.batch + 0.5) / self.n_batches, _WARM_UP)
        labels = self._labels[chosen]
        images = crop_and_flip(self._images, chosen, self._generator)
        if self.recipe.erased:
            images = erase(images, self.recipe.erased, self._generator)
        logits = self._logits(images)
        loss = cross_entropy(logits, labels)
        self._optimizer.zero_grad(set_to_none=True)
        with fast_backward(self.device):
            loss.backward()
        self._optimizer.step()
        self.batch += 1
        return torch.stack([loss.detach(), (logits.argmax(1) == labels).float().mean()])

    def _logits(self, images: Tensor) -> Tensor:
        with self._precision():
            logits: Tensor = self.net((images - self._mean) / self._deviation)
        return logits.float()

    def _precision(self) -> torch.autocast:
        is_half = self.device.type == "cuda"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_half, cache_enabled=False)

    def _capture(self) -> None:
        """Capture the network in CUDA graphs: launching its kernels one by one takes twice as long as they run."""
        before = {name: value.clone() for name, value in self.net.state_dict().items()}
        images = torch.zeros(self.batch_size, *self._images.shape[1:], device=self.device)
        fastest = torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True)
        # torch warms up on another stream than training uses, on purpose; its warning does not concern a user.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        with self._precision(), fastest:
            torch.cuda.make_graphed_callables(self.net, (images,))
        self.net.load_state_dict(before)  # the capture has updated its batch statistics

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        """Use one thread on a CPU unless all are twice as fast: on a busy machine they wait ten times as long."""
        before = torch.get_num_threads()
        try:
            if self.device.type == "cpu" and 2 * self._seconds(before) > self._seconds(1):
                torch.set_num_threads(1)
            else:
                torch.set_num_threads(before)
            yield
        finally:
            torch.set_num_threads(before)

    @torch.no_grad()
    def _seconds(self, n_threads: int) -> float:
        """Return the seconds that a forward pass of one batch takes with this many threads; change nothing."""
        torch.set_num_threads(n_threads)
        images = self._images[: self.batch_size]
        self.net.eval()
        self._logits(images)  # threads start at the first call
        started = time.perf_counter()
        self._logits(images)
        self.net.train()
        return time.perf_counter() - started
