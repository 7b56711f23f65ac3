"""Every kernel compiled for a GPU that need not be there: `python -m tests.support.kernel_compilation`.

The interpreter takes kernels that the compiler refuses.
"""

from itertools import product
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pcl.distributions import CosineLaw, VonMisesFisher
from pcl.encoders import StackedMlp
from pcl.encoders.batch_norm import CountedBatchNorm2d, Counts
from pcl.kernels.hib import FusedHIB
from pcl.kernels.inputs import Partners
from pcl.kernels.integrated.log_mean import log_mean_similarity
from pcl.kernels.integrated.samples import samples_of
from pcl.kernels.integrated.terms import log_terms
from pcl.kernels.latents import sample_latents
from pcl.kernels.mc_info_nce import FusedMCInfoNCE
from pcl.kernels.networks.batch_norm import batch_norm
from pcl.kernels.networks.max_pool import max_pool
from pcl.kernels.networks.narrow_mlp import NarrowMlp
from pcl.kernels.networks.wide_mlp import WideMlp
from pcl.kernels.transport import transport_table
from pcl.mathematics.normalizer_table import growth_table
from pcl.mathematics.random_streams import streams
from tests.support.image_cases import BATCH_NORM_CASES
from tests.support.kernel_reference import partners_of

TARGET = GPUTarget("cuda", 90, 32)
CPU = torch.device("cpu")
_TYPES = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int64: "*i64",
    torch.int32: "*i32", torch.uint8: "*u8",
}  # fmt: skip
_OPTIONS = ("num_warps", "num_stages")
compiled: list[str] = []


def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
    """Compile a kernel for what it would be launched with."""
    del grid, warmup
    options = {name: named.pop(name) for name in _OPTIONS if name in named}
    given = dict(zip(kernel.arg_names, args, strict=False)) | named
    constants = {p.name: given[p.name] for p in kernel.params if p.is_constexpr or given[p.name] is None}
    signature = {p.name: "constexpr" if p.name in constants else _type_of(given[p.name]) for p in kernel.params}
    triton.compile(ASTSource(kernel, signature, constants), target=TARGET, options=options)
    compiled.append(kernel.__name__)


def _type_of(value: Tensor | float) -> str:
    if isinstance(value, Tensor):
        return _TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def launch_all() -> None:
    """Launch every kernel on little data; the results mean nothing."""
    dim, seed_and_step = 10, torch.tensor([1, 2])
    table = transport_table(dim, CosineLaw(), CPU)
    for n_negatives in (1, 32):
        leaves = [leaf.requires_grad_() for leaf in partners_of(4, n_negatives, dim)]
        for kappa_pos in (20.0, 64.0):
            contrast = FusedMCInfoNCE(table, 512, 1.0, kappa_pos)
            contrast(Partners(*leaves), torch.full((1,), kappa_pos), seed_and_step).sum().backward()
        for is_learned, is_mean_inside in product((False, True), repeat=2):
            scales = torch.ones(2, 4, requires_grad=is_learned)
            hib = FusedHIB(table, 8, is_mean_inside, negative_weight=1.0)
            hib(Partners(*leaves), *scales, seed_and_step).sum().backward()
    for size in (2, dim, 64, 128):
        noise, law = torch.randn(32, 1, 4, size), growth_table(size, CPU)
        mode, kappa = torch.ones(1, 4, size, requires_grad=True), torch.ones(1, 4, requires_grad=True)
        posterior = VonMisesFisher(mode, kappa, validate_args=False)
        for is_learned in (False, True):
            scale = torch.ones(1, requires_grad=is_learned)
            z = samples_of(posterior, noise)
            terms = log_terms(z, posterior, posterior, posterior, scale, law)
            (terms.sum() + log_mean_similarity(z.flatten(1, 2), mode, kappa, scale, law).sum()).backward()
    sample_latents(table, torch.ones(4, dim), torch.ones(4), seed_and_step)
    net = StackedMlp([10, 10, 50, 50, 10, 1], streams([4, 5], "net"))
    NarrowMlp(net)(torch.rand(2, 70, 10)).sum().backward()  # type: ignore[no-untyped-call]
    for n_runs in (1, 5):
        deep = StackedMlp([10, 100, 500, 500, 100, 10], streams(range(n_runs), "net"))
        WideMlp(deep)(torch.rand(n_runs, 1024, 10)).sum().backward()  # type: ignore[no-untyped-call]
    images = torch.ones(2, 64, 8, 8, dtype=torch.bfloat16, requires_grad=True)
    for is_counted, has_added, has_relu in BATCH_NORM_CASES:
        layer = CountedBatchNorm2d(64)
        layer.counts = Counts(torch.ones(2, 1), 2) if is_counted else None
        max_pool(batch_norm(layer, images, images if has_added else None, has_relu)).sum().backward()


if __name__ == "__main__":
    triton.runtime.JITFunction.run = compile_only
    launch_all()
    print(f"{len(set(compiled))} kernels compile: {', '.join(sorted(set(compiled)))}")
