"""Optimisers that leave torch's compiler alone do what torch's do."""

import pytest
import torch

from pcl.training.steps import optimizers


@pytest.mark.parametrize(
    ("name", "options"), [("Adam", {"fused": True}), ("AdamW", {"fused": True}), ("SGD", {"momentum": 0.9})]
)
def test_steps_are_torchs_to_the_bit(name: str, options: dict[str, object]) -> None:
    found = []
    for module in (torch.optim, optimizers):
        torch.manual_seed(0)
        net = torch.nn.Linear(5, 3)
        optimizer = getattr(module, name)(net.parameters(), lr=0.1, **options)
        for step in range(6):
            if step == 3:  # a state comes back as it was
                optimizer.load_state_dict(optimizer.state_dict())
            optimizer.zero_grad()
            net(torch.randn(7, 5)).square().sum().backward()
            optimizer.step()
        found.append((net.weight.detach(), optimizer.state_dict()["param_groups"]))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
