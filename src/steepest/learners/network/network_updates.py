"""Steps and penalties of the arrays of a network: its parameters, their moments, their debts, and a clock.

Weights inside the network pay their penalty at every step, rows of the input's tables when they are next seen: the flow
w' = -l2 w - l1 sign(w) composes, so that it does not matter when.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from steepest import kernels
from steepest.data.chunk import Array
from steepest.learners.network.graph import INPUT
from steepest.learners.network.network_settings import SOLVERS, NetworkSettings

Arrays = dict[str, Array]

MOMENTS = {"sgd": (), "momentum": ("first",), "adagrad": ("second",), "adam": ("first", "second")}
KEEP_SECOND = 0.999
EPSILON = {"adagrad": 1e-7, "adam": 1e-8}
STEPS, PATH = 0, 1  # places in the clock


def choices(settings: NetworkSettings) -> kernels.NetworkChoices:
    """The kernels' view of the settings."""
    return kernels.NetworkChoices(
        kind=SOLVERS[settings.solver],
        keep_first=settings.momentum,
        keep_second=KEEP_SECOND,
        epsilon=EPSILON.get(settings.solver, 0.0),
        l1=settings.l1,
        l2=settings.l2,
        batch_size=settings.batch_size,
    )


def update(
    settings: NetworkSettings,
    arrays: Arrays,
    name: str,
    features: Array | None,
    gradient: Array,
    eta: float,
    n_threads: int,
) -> None:
    """One step of the solver for all rows of an array, or for some of a table."""
    table, steps = arrays[name], float(arrays["clock"][STEPS])
    moments = [arrays.get(f"{moment} {name}") for moment in ("first", "second")]
    first, second = (None if moment is None else _two_dimensional(moment) for moment in moments)
    kernels.network_update(
        choices(settings),
        (eta, steps),
        features,
        np.ascontiguousarray(_two_dimensional(gradient), table.dtype),
        _two_dimensional(table),
        first,
        second,
        n_threads,
    )


def _two_dimensional(array: Array) -> Array:
    return array[None] if array.ndim == 1 else array


def shrink(settings: NetworkSettings, arrays: Arrays, penalised: Iterable[str], eta: float) -> None:
    """Applies the penalty: at once inside the network, for the input's weights when their feature is next seen."""
    l1, l2 = settings.l1, settings.l2
    if l1 == 0 and l2 == 0:
        return
    length = eta / (1.0 - settings.momentum) if settings.solver == "momentum" else eta
    arrays["clock"][PATH] += length
    factor = math.exp(-l2 * length)
    less = l1 / l2 * (1.0 - factor) if l2 > 0 else l1 * length
    for name in penalised:
        if not name.startswith(f"{INPUT}>"):
            w = arrays[name]
            w *= w.dtype.type(factor)
            if less > 0:
                w[...] = np.copysign(np.maximum(np.abs(w) - w.dtype.type(less), 0), w)


def pay_penalty(settings: NetworkSettings, arrays: Arrays, name: str, features: Array | None = None) -> None:
    """Applies the pending penalty to rows of a table of the input (all, if none are named)."""
    owed = debts(settings, arrays, name)
    if owed is not None and len(owed[0]):
        kernels.network_apply_penalty(features, owed, arrays[name])


def debts(settings: NetworkSettings, arrays: Arrays, name: str) -> tuple[Array, float, float, float] | None:
    """The pending penalties of table rows: when each was up to date, the path length of penalties, l1 and l2."""
    stamp = arrays.get(f"stamp {name}")
    return None if stamp is None else (stamp, float(arrays["clock"][PATH]), settings.l1, settings.l2)


def paid_weights(settings: NetworkSettings, arrays: Arrays, name: str) -> Array:
    """A copy of an edge's weights with the pending penalty applied."""
    copies = {name: arrays[name].copy(), "clock": arrays["clock"]}
    if f"stamp {name}" in arrays:
        copies[f"stamp {name}"] = arrays[f"stamp {name}"].copy()
    pay_penalty(settings, copies, name)
    return copies[name]
