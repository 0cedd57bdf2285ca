"""What "auto" means to a text classifier: settings that follow from the data, each with a sentence that says why.

The limits were chosen on held-out parts of the training rows of nine data sets, see docs/models/text.md. None depends
on the number of threads, so neither do the bits.
"""

from __future__ import annotations

TEXTS_TO_LEARN = 250_000  # in all epochs together
FEWEST_EPOCHS, MOST_EPOCHS = 5, 50
MANY_LABELS, VERY_MANY_LABELS = 32, 256
LEAST_TEXTS = 10_000  # below, replicas do not pay
ROUND_FEATURES = 1536  # of a replica: their rows stay in the cache, and little is learned from old ones
FEWEST_TEXTS_EACH, MOST_TEXTS_EACH = 2, 16


def choose_epochs(n_texts: int | None) -> tuple[int, str]:
    """Small data are learned more often; None: they can be read only once."""
    if n_texts is None:
        return 1, "epochs='auto' chose 1: the data can be read only once"
    epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, round(TEXTS_TO_LEARN / max(1, n_texts))))
    return epochs, f"epochs='auto' chose {epochs} for {n_texts:,} texts"


def choose_dim(n_labels: int) -> tuple[int, str]:
    """More labels need more room to lie apart."""
    dim = 16 if n_labels < MANY_LABELS else 32 if n_labels < VERY_MANY_LABELS else 64
    return dim, f"dim='auto' chose {dim} for {n_labels:,} labels"


def choose_eta0(n_labels: int) -> tuple[float, str]:
    """The more labels, the smaller is the slope of each."""
    eta0 = 0.5 if n_labels < MANY_LABELS else 1.0
    return eta0, f"eta0='auto' chose {eta0} for {n_labels:,} labels"


def choose_parallel(n_texts: int | None) -> tuple[str, str]:
    """Replicas, if there is something to share."""
    if n_texts is not None and n_texts < LEAST_TEXTS:
        return "serial", f"parallel='auto' learns serially: {n_texts:,} texts are too few to share"
    return "replicas", "parallel='auto' chose replicas: the bits do not depend on n_jobs"


def choose_sync_every(length: float | None) -> int:
    """Texts of a replica's round by their mean length in features: a round of long ones would go too far astray."""
    texts = MOST_TEXTS_EACH if not length else int(ROUND_FEATURES / length)
    return min(MOST_TEXTS_EACH, max(FEWEST_TEXTS_EACH, texts))
