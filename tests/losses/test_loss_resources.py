"""What the losses cost: memory on a CPU, and memory, agreement and asynchrony on a GPU."""

import math
import sys
from dataclasses import replace

import pytest
import torch

from pcl.distributions import VonMisesFisher
from pcl.losses import LOSSES, MCInfoNCE
from tests.support.fresh import fresh
from tests.support.posteriors import SAMPLING, posteriors, triple
from tests.support.torch_state import synchronization_forbidden

MEMORY_PROBE = """
torch.set_num_threads(1)
def high_water():  # KiB
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("VmHWM")).split()[1])
def posterior(*batch):
    mu = torch.nn.functional.normalize(torch.randn(*batch, 10), dim=-1).requires_grad_()
    return VonMisesFisher(mu, torch.full(batch, 20.0, requires_grad=True), validate_args=False)
def step(S, B, N, chunk):
    loss = MCInfoNCE.Config(n_samples=S).build()
    loss.chunk_size = chunk
    loss(posterior(B), posterior(B), posterior(B, N)).mean().backward()
step(4, 2, 1, 1)  # loads everything that a chunked step needs
before = high_water()
step(128, 512, 32, CHUNK)
print((high_water() - before) / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the high-water mark from /proc")
def test_peak_memory_of_mc_info_nce() -> None:
    """At a quarter of the full size (S = 128 instead of 512), in chunks of 4 samples.

    16 MiB of random numbers and what a chunk needs. The full size, with a bar of 1 GiB, is measured by
    `python launch/bench.py loss`.
    """

    # Every tensor gets pages of its own and gives them back: the high-water mark is that of the tensors alive.
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    imports = "import torch\nfrom pcl.distributions import VonMisesFisher\nfrom pcl.losses import MCInfoNCE\n"
    probes = [imports + MEMORY_PROBE.replace("CHUNK", size) for size in ("2**16", "2**30")]
    chunked, large = (float(probe.out) for probe in fresh(*probes, after=imports, environment=environment))
    assert chunked < 50  # 38 when written
    assert large < 200  # the default; a quarter of the bar would be 256
    assert large > 1.5 * chunked  # 83 when written: the probe sees memory, and chunks are what saves it


@pytest.mark.gpu
@pytest.mark.parametrize("name", LOSSES)
def test_gpu_agrees_with_cpu_and_is_never_waited_for(name: str) -> None:
    """Sampling losses agree in law: means over 2,000 equal anchors within 4 standard errors."""
    config = replace(LOSSES[name].Config(), n_samples=64) if name in SAMPLING else LOSSES[name].Config()
    loss = config.build()
    anchor, positive, negatives = (
        VonMisesFisher(d.mu[:1].expand(2000, *d.mu.shape[1:]), d.kappa[:1].expand(2000, *d.kappa.shape[1:]))
        for d in posteriors(*triple(dtype=torch.float32))
    )
    on_cpu = loss(anchor, positive, negatives).detach()
    loss = loss.cuda()
    moved = [
        VonMisesFisher(d.mu.detach().cuda().requires_grad_(), d.kappa.detach().cuda().requires_grad_())
        for d in (anchor, positive, negatives)
    ]
    loss(*moved)  # builds the tables
    with synchronization_forbidden():
        values = loss(*moved)
        values.sum().backward()
        with pytest.raises(RuntimeError, match="synchronizing"):  # the mode would have seen it
            values.sum().item()
    on_gpu = values.detach().cpu()
    error = math.hypot(on_cpu.std().item(), on_gpu.std().item()) / math.sqrt(2000)
    assert abs(on_cpu.mean().item() - on_gpu.mean().item()) < 4 * error + 1e-4 * abs(on_cpu.mean().item())


@pytest.mark.gpu
def test_full_size_stays_under_one_gibibyte_on_the_gpu() -> None:
    posterior_of = {}
    for key, batch in (("anchor", (512,)), ("positive", (512,)), ("negatives", (512, 32))):
        mu = torch.nn.functional.normalize(torch.randn(*batch, 10, device="cuda"), dim=-1)
        kappa = torch.full(batch, 20.0, device="cuda")
        posterior_of[key] = VonMisesFisher(mu.requires_grad_(), kappa.requires_grad_())
    before = torch.cuda.memory_allocated()  # of other tests
    torch.cuda.reset_peak_memory_stats()
    MCInfoNCE.Config(n_samples=512).build().cuda()(**posterior_of).mean().backward()
    assert torch.cuda.max_memory_allocated() - before < 2**30
