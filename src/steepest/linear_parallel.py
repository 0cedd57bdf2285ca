"""What the parameters of a linear model ask of parallel learning: the kind, how often to meet, and what to refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from steepest import kernels
from steepest.data.parameters import ParameterError, choice, inside, whole
from steepest.data.source import ArraySource, Source
from steepest.engine.mixing import MIXES, SENDS, MixPlan
from steepest.engine.parallel import KINDS, Shape, decide
from steepest.learners.batch import SOLVERS
from steepest.learners.linear_settings import ADAPTIVE, LinearSettings
from steepest.model import threads


class ParallelWishes:
    """The parameters of parallel learning, checked and resolved."""

    _task: ClassVar[str]
    epochs: int
    n_jobs: int
    random_state: int | None
    parallel: str
    n_replicas: int
    sync_every: int
    n_shards: int
    rounds: int | None
    sync_seconds: float | None
    mix: str
    send: str
    vote: bool | str

    def _parallel(self, settings: LinearSettings, source: Source | None) -> tuple[str, str | None]:
        """(the way of learning in parallel, why if that was chosen here)."""
        kind = choice("parallel", self.parallel, KINDS)
        if kind != "auto":
            return "serial" if kind == "mixing" and self.n_shards == 1 else kind, None
        shared_out = self._outputs_apart(settings, source) // kernels.outputs_a_thread
        if min(threads(self.n_jobs), shared_out) > 1:
            return "serial", "parallel='auto' lets threads share out the outputs: the bits are those of one thread"
        n_weights = row_length = None
        if settings.table_bits:
            n_weights = 1 << settings.table_bits
        elif source is not None and source.n_features is not None:
            classes = 1 if source.labels is None or len(source.labels) < 3 else len(source.labels)
            n_weights = source.n_features * classes
        if isinstance(source, ArraySource):
            row_length = len(source.block.indices) / max(1, source.block.n_rows)
        shape = Shape(None if source is None else source.n_rows, n_weights, row_length)
        n_round = self._in_parallel(settings, "replicas")
        if n_round.l1 > 0 and n_round.rule not in ADAPTIVE:
            return "serial", f"parallel='auto' learns serially: the 1-norm of solver={settings.rule!r} cannot be shared"
        seeded = self.random_state is not None
        return decide(shape, threads(self.n_jobs), n_round.n_replicas * n_round.sync_every, seeded=seeded)

    def _outputs_apart(self, settings: LinearSettings, source: Source | None) -> int:
        """Outputs that learn without knowing of each other, as far as the source tells."""
        apart = settings.multi_class == "ovr" and not settings.table_bits
        if source is None or source.labels is None or not apart or (settings.l1 > 0 and settings.rule not in ADAPTIVE):
            return 1
        return len(source.labels)

    def _in_parallel(self, settings: LinearSettings, kind: str) -> LinearSettings:
        """The settings of a learner that learns in this way."""
        if kind == "hogwild":
            return replace(settings, hogwild=True)
        if kind != "replicas":
            return settings
        n_replicas = whole("n_replicas", self.n_replicas, 1)
        return replace(settings, n_replicas=n_replicas, sync_every=whole("sync_every", self.sync_every, 1))

    def _refuse_parallel(self, settings: LinearSettings) -> None:
        kind = choice("parallel", self.parallel, KINDS)
        if settings.rule in SOLVERS and kind not in ("serial", "auto"):
            raise ParameterError(
                f"solver={settings.rule!r} works on all rows at once and takes its threads from n_jobs; "
                f"leave parallel={kind!r} out, or choose solver='sgd'"
            )
        if kind in ("replicas", "hogwild") and settings.l1 > 0 and settings.rule not in ADAPTIVE:
            raise ParameterError(
                f"parallel={kind!r} cannot share the clocks by which solver={settings.rule!r} shrinks weights; "
                "use solver='ftrl' or parallel='mixing'"
            )
        if kind != "serial" and kind != "auto" and settings.rule == "coin":
            raise ParameterError(
                f"solver='coin' bets row after row; parallel={kind!r} needs another solver, such as 'sgd'"
            )
        if kind == "mixing":
            self._mix_plan(whole("epochs", self.epochs, 1))
        elif self.vote is not False:
            raise ParameterError(f"vote={self.vote!r} needs shards that can vote; set parallel='mixing'")

    def _mix_plan(self, epochs: int) -> MixPlan:
        rounds = epochs if self.rounds is None else whole("rounds", self.rounds, 1)
        if rounds > epochs and rounds % epochs:
            raise ParameterError(f"rounds={rounds} is no multiple of epochs={epochs}; an epoch is cut in equal rounds")
        if self.vote not in (False, True, "ensemble"):
            raise ParameterError(f"vote={self.vote!r} is unknown; give True, False or 'ensemble'")
        if self.vote and self._task != "classify":
            raise ParameterError(f"vote={self.vote!r} is for classifiers; numbers are averaged by mixing itself")
        return MixPlan(
            n_shards=whole("n_shards", self.n_shards, 1),
            rounds=rounds,
            mix=choice("mix", self.mix, MIXES),
            send=choice("send", self.send, SENDS),
            n_threads=threads(self.n_jobs),
            seconds=self._sync_seconds(),
        )

    def _sync_seconds(self) -> float | None:
        if self.sync_seconds is None:
            return None
        if self.rounds is not None:
            raise ParameterError(f"sync_seconds={self.sync_seconds} contradicts rounds={self.rounds}; give one of them")
        return inside("sync_seconds", self.sync_seconds, 0.0, math.inf)
