"""Alarms come when a stream changes, and hardly ever when it does not."""

from __future__ import annotations

import numpy as np
import pytest

from steepest.engine.drift import Drift


@pytest.mark.parametrize("seed", range(10))
def test_a_steady_stream_raises_no_alarm_and_takes_little_memory(seed):
    rng = np.random.default_rng(seed)
    drift = Drift()
    assert not any(drift.add(value) for value in (rng.random(20_000) < 0.3).astype(float).tolist())
    assert (drift.n, drift.mean) == (20_000, pytest.approx(0.3, abs=0.02))
    assert sum(map(len, drift._levels)) < 5 * 16


@pytest.mark.parametrize("seed", range(5))
def test_a_change_is_noticed_soon_and_the_old_part_forgotten(seed):
    rng = np.random.default_rng(seed)
    drift = Drift()
    for value in (rng.random(3000) < 0.1).tolist():
        drift.add(float(value))
    alarms = [n for n, value in enumerate((rng.random(1000) < 0.5).tolist()) if drift.add(float(value))]
    assert alarms
    assert alarms[0] < 200
    assert drift.mean > 0.4
    assert drift.n < 1500


def test_the_window_adds_up_to_what_is_in_it():
    rng = np.random.default_rng(3)
    drift = Drift()
    values = np.concatenate([rng.random(2000) * 0.2, rng.random(700)]).tolist()
    for value in values:
        drift.add(value)
    kept = values[-drift.n :]
    assert drift.total == pytest.approx(sum(kept))
    assert drift.squares == pytest.approx(sum(value**2 for value in kept))
    assert sum(len(level) << size for size, level in enumerate(drift._levels)) == drift.n
