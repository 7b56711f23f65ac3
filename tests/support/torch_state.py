"""Torch's global switches: tests leave them as they found them, so that their order does not matter."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributions import Distribution


@contextmanager
def restored() -> Iterator[None]:
    """Put every switch back that was turned inside."""
    cudnn = torch.backends.cudnn
    flags = cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32
    precision, dtype = torch.get_float32_matmul_precision(), torch.get_default_dtype()
    n_threads = torch.get_num_threads()
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    is_anomaly_detected, has_grad = torch.is_anomaly_enabled(), torch.is_grad_enabled()
    are_arguments_checked = Distribution._validate_args
    try:
        yield
    finally:
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = flags
        if torch.get_float32_matmul_precision() != precision:
            torch.set_float32_matmul_precision(precision)
        torch.set_default_dtype(dtype)
        torch.set_num_threads(n_threads)
        if torch.are_deterministic_algorithms_enabled() != is_deterministic:  # the call imports torch's compiler
            torch.use_deterministic_algorithms(is_deterministic, warn_only=only_warns)
        torch.set_anomaly_enabled(is_anomaly_detected)
        torch.set_grad_enabled(has_grad)
        Distribution.set_default_validate_args(are_arguments_checked)
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
        if torch.cuda.is_initialized():
            _set_sync_debug_mode("default")


@contextmanager
def synchronization_forbidden() -> Iterator[None]:
    """Make every wait for the GPU an error."""
    try:
        _set_sync_debug_mode("error")
        yield
    finally:
        _set_sync_debug_mode("default")


def _set_sync_debug_mode(mode: str) -> None:
    """Torch warns that the mode is a prototype, after it has set it: where warnings are errors, the call raises."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode")
        torch.cuda.set_sync_debug_mode(mode)
