"""The parts of a ResNet-18, which a training step can have computed by kernels.

Axes: N images, C channels, H rows, W columns.
"""

from collections.abc import Callable

from torch import Tensor, nn

from pcl.encoders.batch_norm import CountedBatchNorm2d


class ActivatedNorm(CountedBatchNorm2d):
    """A batch norm followed by a ReLU."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a batch (N, C, H, W) and apply the ReLU."""
        return self.activated(input)


class Pool(nn.MaxPool2d):
    """nn.MaxPool2d that a kernel can compute in training."""

    kernel: Callable[[Tensor], Tensor] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Pool a batch (N, C, H, W)."""
        if self.kernel is not None and self.training:
            return self.kernel(input)
        pooled: Tensor = super().forward(input)
        return pooled


class Block(nn.Module):
    """Two convolutions and a shortcut past them: torchvision's basic block, with its names of weights."""

    def __init__(self, n_in: int, n_out: int, stride: int = 1) -> None:
        super().__init__()
        shortcut = None
        if stride > 1:
            shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), CountedBatchNorm2d(n_out))
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.bn1 = CountedBatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = CountedBatchNorm2d(n_out)
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, n_in, H, W) to (N, n_out, H / stride, W / stride)."""
        y = self.conv2(self.bn1.activated(self.conv1(x)))
        return self.bn2.activated(y, x if self.downsample is None else self.downsample(x))
