"""Schedules of the learning rate."""

import math

import pytest

from pcl.config.schedule import LrSchedule, Phases, TrainingConfig, warm_up_cosine


def test_warm_up_and_cosine_by_hand() -> None:
    training = TrainingConfig(n_batches=5120, lr=2.0, lr_schedule=LrSchedule.WARM_UP_COSINE)
    assert training.lr_at(0) == pytest.approx(2 * (0.5 / 512) / 0.05)
    assert training.lr_at(9) == training.lr_at(0) < training.lr_at(10)  # in slices of 1/512
    assert training.lr_at(100) == pytest.approx(2 * (10.5 / 512) / 0.05)
    middle = (256.5 / 512 - 0.05) / 0.95
    assert training.lr_at(2560) == pytest.approx(1 + math.cos(math.pi * middle))
    assert 0 < training.lr_at(5119) < 1e-4
    assert max(training.lr_at(batch) for batch in range(5120)) == pytest.approx(2, rel=1e-3)
    assert [warm_up_cosine(done, 0.05) for done in (0, 0.025, 0.05, 0.525, 1)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    assert [training.next_stop(batch) for batch in (0, 9, 10, 5115)] == [10, 10, 20, 5120]


def test_warm_up_and_cosine_in_every_phase() -> None:
    schedule = LrSchedule.PHASE_WARM_UP_COSINE
    training = TrainingConfig(n_batches=5120, lr=2.0, lr_schedule=schedule, phases=Phases.parse("mu kappa:3"))
    assert training.lr_at(0) == training.lr_at(1280) == pytest.approx(2 * (0.5 / 512) / 0.2)
    assert training.lr_at(128) == pytest.approx(2 * (51.5 / 512 / 0.2))  # a tenth of the first phase is half a warm-up
    assert training.lr_at(1280 + 384) == pytest.approx(training.lr_at(128), rel=0.02)
    assert 0 < training.lr_at(1279) < 1e-4
    assert 0 < training.lr_at(5119) < 1e-4
    for begin, end in ((0, 1280), (1280, 5120)):
        assert max(training.lr_at(batch) for batch in range(begin, end)) == pytest.approx(2, rel=1e-3)
    batch, stops = 0, []
    while batch < 5120:
        stop = training.next_stop(batch)
        assert len({training.lr_at(one) for one in range(batch, stop)}) == 1
        stops.append(batch := stop)
    assert 1280 in stops
    assert len(stops) == 2 * 512
