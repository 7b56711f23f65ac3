"""Positives that are chosen among candidates: the law of the choice, and of the candidates."""

import pytest
import torch
from scipy import stats
from torch import Tensor

from pcl.data.folds import split
from pcl.tasks import CifarTask, Labels, Negatives
from pcl.tasks.cifar import Augmentation
from tests.tasks.test_cifar import C, N, numbered, numbers


def task_of(labels: Labels = Labels.SOFT, **values: Augmentation) -> tuple[CifarTask, Tensor]:
    """Return a task, and the shares of every numbered image in training; of others, NaN."""
    data = numbered()
    task = CifarTask(CifarTask.Config(labels=labels, **values), data, [0])  # type: ignore[arg-type]
    shares = torch.full((N, C), torch.nan, dtype=torch.float64)
    shares[split(N, 0).train] = task.folds[0].shares.double()
    return task, shares


@pytest.mark.parametrize("labels", [Labels.SOFT, Labels.HARD])
def test_positives_are_chosen_by_their_exact_probabilities(labels: Labels) -> None:
    """Given anchor and candidates, P(x+) = sum_c P(c|x) P(c|x+) / sum_x' P(c|x').

    The distribution function at the choice, randomised within its step, is uniform. Candidates are put in the order of
    their share in the anchor's first class, so that other weights show.
    """
    task, shares = task_of(labels)
    generator = torch.Generator().manual_seed(1)
    uniform = []
    for _ in range(60):
        anchor, candidates, chosen = task.draw_choices(100, 8, generator) or ()
        x, pool = shares[numbers(anchor[0])], shares[numbers(candidates[0])]
        chances = x @ (pool / pool.sum(0)).T  # (B, N)
        torch.testing.assert_close(chances.sum(1), torch.ones(100, dtype=torch.float64))
        order = pool.T[x.argmax(1)].argsort(1)
        sums = chances.gather(1, order).cumsum(1)
        place = (order == chosen[0].unsqueeze(1)).double().argmax(1, keepdim=True)
        above, width = sums.gather(1, place), chances.gather(1, chosen[0].unsqueeze(1))
        uniform.append(above - width * torch.rand(above.shape, generator=generator, dtype=torch.float64))
    counts = torch.histc(torch.cat(uniform), 20, 0, 1)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_candidates_are_one_of_each_class_and_uniform_ones() -> None:
    task, shares = task_of(Labels.HARD)
    generator = torch.Generator().manual_seed(1)
    drawn = [numbers((task.draw_choices(2, C + 5, generator) or ())[1][0]) for _ in range(600)]
    candidates = torch.stack(drawn)
    assert (shares[candidates[:, :C]].argmax(-1) == torch.arange(C)).all()  # whatever the anchors are
    train = split(N, 0).train
    counts = torch.bincount(candidates[:, C:].flatten(), minlength=N)
    assert counts.sum() == counts[train].sum()
    assert stats.chisquare(counts[train].numpy()).pvalue > 1e-3


def test_candidates_do_not_depend_on_the_anchors() -> None:
    """Else the law of the choice, given the candidates, would be another."""
    task, _ = task_of()
    drawn = [task.draw_choices(64, 8, torch.Generator().manual_seed(seed)) for seed in range(200)]
    means = [[numbers(part[0]).double().mean() for part in (b.anchor, b.candidates)] for b in drawn if b is not None]
    assert stats.pearsonr(*zip(*means, strict=True)).pvalue > 1e-3


def test_a_batch_with_positives_apart_is_the_same() -> None:
    task, _ = task_of()
    choices = task.draw_choices(16, 8, torch.Generator().manual_seed(3))
    batch = task.draw(16, Negatives.POOL, 8, torch.Generator().manual_seed(3))
    assert choices is not None
    assert torch.equal(batch.anchor, choices.anchor)
    assert torch.equal(batch.negatives, choices.candidates.unsqueeze(1))
    assert torch.equal(batch.positive[0], choices.candidates[0, choices.chosen[0]])


def test_an_augmented_positive_is_the_candidate_itself() -> None:
    task, _ = task_of(augmentation=Augmentation.CROP_FLIP)
    batch = task.draw(16, Negatives.POOL, 8, torch.Generator().manual_seed(3))
    same = (batch.positive.unsqueeze(2) == batch.negatives).flatten(3).all(-1)
    assert same.any(-1).all()


def test_fewer_candidates_than_classes_are_refused() -> None:
    task, _ = task_of()
    with pytest.raises(
        ValueError, match=r"a candidate of each class: `training.n_negatives >= 3` must hold, but got 2"
    ):
        task.draw(4, Negatives.POOL, C - 1, torch.Generator())
    assert task.draw(4, Negatives.POOL, C, torch.Generator()).negatives.shape[:3] == (1, 1, C)


def test_a_users_own_draw_is_not_passed_by() -> None:
    class Own(CifarTask):  # type: ignore[misc]
        def draw(self, *_: object) -> None:  # type: ignore[override]
            """Draw in another way."""

    assert Own(CifarTask.Config(), numbered(), [0]).draw_choices(4, 8, torch.Generator()) is None
