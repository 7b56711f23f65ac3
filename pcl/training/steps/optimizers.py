"""torch's optimisers without torch's compiler.

Each of their methods first imports the compiler, only to disable it: two seconds in every process that trains, as long
as a short trial. Here they are torch's own, unwrapped.
"""

from inspect import unwrap

import torch


class _Uncompiled(torch.optim.Optimizer):
    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class Adam(_Uncompiled, torch.optim.Adam):
    """torch's Adam."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(_Uncompiled, torch.optim.AdamW):
    """torch's AdamW."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class SGD(_Uncompiled, torch.optim.SGD):
    """torch's SGD."""

    step = torch.no_grad()(unwrap(torch.optim.SGD.step))
