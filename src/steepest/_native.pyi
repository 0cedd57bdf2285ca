"""The types of the native module; every array is C-contiguous and on the processor.

Arrays of state are changed in place, so they must have the right type and layout already: nothing is converted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Values = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Table = npt.NDArray[Any]  # float32 or float64
Bytes = npt.NDArray[np.uint8]

isa: str

class Choices:
    def __init__(
        self,
        *,
        loss: int,
        loss_parameter: float,
        target_kind: int,
        schedule: int,
        eta0: float,
        power: float,
        decay: float,
        l1: float,
        l2: float,
        threshold: float,
        shrink_period: int,
        average: int,
        batch_size: int,
        bias_scale: float,
        table_bits: int = 0,
        n_columns: int = 0,
    ) -> None: ...

def batch_pass(
    indptr: Ints,
    indices: Indices,
    values: Values,
    y: Floats | None,
    weight: Floats | None,
    order: Ints | None,
    weights: Floats,
    n_outputs: int,
    kind: int,
    loss: int,
    parameter: float,
    target_kind: int,
    smoothing: float,
    shift: Floats | None,
    curvature: Floats | None,
    slopes: Floats | None,
    sums: Floats | None,
    totals: Floats,
    first_visit: int,
    block_rows: int,
    n_threads: int,
) -> int: ...
def linear_sgd(
    indptr: Ints,
    indices: Indices,
    values: Values,
    y: Floats,
    weight: Floats | None,
    order: Ints | None,
    v: Table,
    shrunk: Floats | None,
    average: Table | None,
    bias: Floats,
    bias_square: Floats,
    bias_average: Floats,
    clock: Floats,
    choices: Choices,
    n_threads: int = 1,
    n_replicas: int = 0,
    rows_each: int = 0,
    gain: float = 0.0,
    replica_v: Table | None = None,
    replica_average: Table | None = None,
    synced: bool = False,
) -> tuple[int, int, float, float]: ...
def linear_adagrad(
    indptr: Ints,
    indices: Indices,
    values: Values,
    y: Floats,
    weight: Floats | None,
    order: Ints | None,
    v: Table,
    shrunk: Floats | None,
    average: Table | None,
    bias: Floats,
    bias_square: Floats,
    bias_average: Floats,
    clock: Floats,
    choices: Choices,
    n_threads: int = 1,
    n_replicas: int = 0,
    rows_each: int = 0,
    gain: float = 0.0,
    replica_v: Table | None = None,
    replica_average: Table | None = None,
    synced: bool = False,
) -> tuple[int, int, float, float]: ...
def linear_ftrl(
    indptr: Ints,
    indices: Indices,
    values: Values,
    y: Floats,
    weight: Floats | None,
    order: Ints | None,
    v: Table,
    shrunk: Floats | None,
    average: Table | None,
    bias: Floats,
    bias_square: Floats,
    bias_average: Floats,
    clock: Floats,
    choices: Choices,
    n_threads: int = 1,
    n_replicas: int = 0,
    rows_each: int = 0,
    gain: float = 0.0,
    replica_v: Table | None = None,
    replica_average: Table | None = None,
    synced: bool = False,
) -> tuple[int, int, float, float]: ...
def linear_coin(
    indptr: Ints,
    indices: Indices,
    values: Values,
    y: Floats,
    weight: Floats | None,
    order: Ints | None,
    v: Table,
    shrunk: Floats | None,
    average: Table | None,
    bias: Floats,
    bias_square: Floats,
    bias_average: Floats,
    clock: Floats,
    choices: Choices,
    n_threads: int = 1,
    n_replicas: int = 0,
    rows_each: int = 0,
    gain: float = 0.0,
    replica_v: Table | None = None,
    replica_average: Table | None = None,
    synced: bool = False,
) -> tuple[int, int, float, float]: ...
def linear_scores(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    weights: Table,
    scale: float,
    bias: Floats,
    scores: Floats,
    n_threads: int,
    table_bits: int = 0,
    n_columns: int = 0,
) -> tuple[int, int]: ...

class_hash_id: str
class_window: int
outputs_a_thread: int

def class_weights(table: Table, features: Ints, output: int, table_bits: int) -> Table: ...
def linear_settle(
    v: Table,
    shrunk: Floats | None,
    clock: Floats,
    n_outputs: int,
    choices: Choices,
    average: Table | None = None,
) -> None: ...
def table_norms(table: Table) -> tuple[float, float, int]: ...
def mean_norms(
    v: Table,
    average: Table | None,
    n_outputs: int,
    sum_of_scales: float,
    total: float,
    rows_each: int,
    n_threads: int = 1,
) -> tuple[float, float, int]: ...
def mean_weights(v: Table, average: Table | None, sum_of_scales: float, total: float, out: Table) -> None: ...
def loss_value_slope(loss: int, parameter: float, scores: Floats, y: Floats) -> tuple[Floats, Floats]: ...

kmeans_lanes: int

def kmeans_nearest(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    table: Values,
    scale: Values,
    norm: Values,
    k: int,
    label: Indices,
    best: Floats | None,
    n_threads: int,
) -> tuple[int, int, int]: ...
def kmeans_nearest_bounded(
    indptr: Ints,
    indices: Indices,
    values: Values,
    table: Values,
    scale: Values,
    norm: Values,
    drift: Floats,
    label: Indices,
    upper: Floats,
    lower: Floats,
    row_norm: Floats,
    n_threads: int,
) -> tuple[int, int, int]: ...
def kmeans_distances(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    table: Values,
    scale: Values,
    norm: Values,
    k: int,
    out: Floats,
    n_threads: int,
) -> int: ...
def kmeans_add(
    indptr: Ints,
    indices: Indices,
    values: Values,
    weight: Floats | None,
    order: Ints | None,
    label: Indices,
    table: Values,
    count: Floats,
    square: Floats,
    n_threads: int,
) -> int: ...
def kmeans_means(
    indptr: Ints,
    indices: Indices,
    values: Values,
    weight: Floats | None,
    members: Ints,
    starts: Ints,
    which: Ints,
    table: Values,
    mass: Floats,
    norm: Floats,
    drift: Floats,
    n_threads: int,
) -> None: ...
def number_columns(indices: Indices) -> tuple[Indices, int]: ...
def place_features(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    number: Indices,
    owners: Indices | None,
    n_slots: int,
) -> tuple[Ints, Indices, Values, int]: ...
def mark_nonzeros(elements: npt.NDArray[Any], mask: Bytes, n_threads: int = 1) -> int: ...
def pick_nonzeros(elements: npt.NDArray[Any], mask: Bytes, values: npt.NDArray[Any], n_threads: int = 1) -> None: ...
def list_places(mask: Bytes, places: npt.NDArray[Any], n_threads: int = 1) -> None: ...
def spread_nonzeros(mask: Bytes, values: npt.NDArray[Any], elements: npt.NDArray[Any], n_threads: int = 1) -> bool: ...
def sparse_rows(matrix: Table) -> tuple[Ints, Indices, Values] | int: ...
def network_forward(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    table: Table,
    stamp: Floats | None,
    path: float,
    l1: float,
    l2: float,
    out: Table,
    n_threads: int = ...,
) -> int: ...
def network_scores(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    table: Table,
    stamp: Floats | None,
    path: float,
    l1: float,
    l2: float,
    out: Table,
    n_threads: int = ...,
) -> int: ...
def network_gather(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    slopes: Table,
    slot: Indices,
    features: Indices,
    gradient: Table,
    n_threads: int = ...,
) -> int: ...
def network_descend(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    slopes: Table,
    eta: float,
    table: Table,
    n_threads: int = ...,
) -> int: ...
def network_update(
    kind: int,
    eta: float,
    keep_first: float,
    keep_second: float,
    epsilon: float,
    first_seen: float,
    second_seen: float,
    features: Indices | None,
    gradient: Table,
    table: Table,
    first: Table | None,
    second: Table | None,
    n_threads: int = ...,
) -> None: ...
def network_settle(
    features: Indices | None, stamp: Floats, path: float, l1: float, l2: float, table: Table
) -> None: ...
def network_densify(
    indptr: Ints, indices: Indices, values: Values, order: Ints | None, out: Table, used: npt.NDArray[np.uint8]
) -> int: ...
def network_softmax(scores: Table, classes: Ints, factor: Floats, losses: Floats, slopes: Table) -> None: ...
def network_learn(
    indptr: Ints,
    indices: Indices,
    values: Values,
    order: Ints | None,
    stations: Ints,
    wires: Ints,
    tables: list[Table],
    first: list[Table],
    second: list[Table],
    stamps: list[Floats],
    slot: Indices,
    clock: Floats,
    rule: tuple[int, float, float, float],
    penalties: tuple[float, float],
    steps: Floats,
    batch_size: int,
    loss: tuple[int, float, bool],
    units: Floats,
    classes: Ints | None,
    y: Floats | None,
    weight: Floats | None,
    totals: Floats,
    n_threads: int = ...,
) -> tuple[int, int]: ...
def network_multiply(a: Table, b: Table, c: Table, a_is_transposed: bool = ..., n_threads: int = ...) -> None: ...
def parse_libsvm(
    buffers: list[Any],
    zero_based: bool,
    with_labels: bool,
    skip_bad: bool,
    n_features: int = ...,
) -> tuple[
    Ints, Indices, Values, Floats | None, Ints | None, int, list[int], list[int], list[tuple[int, int, int, int, str]]
]: ...
def parse_vw(
    buffers: list[Any],
    n_bits: int,
    signed: bool,
    with_labels: bool,
    skip_bad: bool,
    seed: int,
    log_from: list[int] = [],
) -> tuple[
    Ints,
    Indices,
    Values,
    Floats | None,
    Floats | None,
    list[int],
    list[int],
    list[tuple[int, int, int, int, str]],
    NameLog,
]: ...

# ---------------------------------------------------------------------------------------------------------------- text

Texts = list[Any] | tuple[npt.NDArray[np.uint8], npt.NDArray[Any], npt.NDArray[np.uint8] | None]
Column = Texts | npt.NDArray[np.float64]

hash_id: str
sampled_buckets: int

class HashOptions:
    def __init__(
        self,
        *,
        n_bits: int,
        ngrams: tuple[int, int],
        char_ngrams: tuple[int, int],
        weighting: int,
        copies: int,
        min_letters: int,
        is_signed: bool,
        lowercase: bool,
        normalise: bool,
        seed: int,
    ) -> None: ...

class NameLog: ...

class NameTable:
    def __init__(self, n_names: int) -> None: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def n_rows(self) -> int: ...
    def names_of(self, buckets: npt.NDArray[np.int64]) -> list[list[str]]: ...
    def read(self, log: NameLog, n_rows: int) -> None: ...
    def buckets(self) -> npt.NDArray[np.int64]: ...
    def touched(self) -> npt.NDArray[np.uint64]: ...
    def prune(self, importance: npt.NDArray[np.float64]) -> None: ...
    def state(
        self,
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.uint64], npt.NDArray[np.uint64], int]: ...
    def restore(
        self,
        numbers: npt.NDArray[np.uint32],
        texts: npt.NDArray[np.uint8],
        seen_once: npt.NDArray[np.uint64],
        touched: npt.NDArray[np.uint64],
        rows: int,
    ) -> None: ...

class HashRecipe:
    def __init__(
        self,
        columns: Sequence[tuple[int, str, str]],
        crosses: Sequence[tuple[int, int]],
        stop_words: Sequence[str],
        options: HashOptions,
    ) -> None: ...

def hash_rows(
    recipe: HashRecipe,
    columns: list[Column],
    count_documents: npt.NDArray[np.uint32] | None,
    document_counts: npt.NDArray[np.uint32] | None,
    n_documents: float,
    book: NameTable | None,
    n_threads: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]: ...
def score_rows(
    recipe: HashRecipe,
    columns: list[Column],
    document_counts: npt.NDArray[np.uint32] | None,
    n_documents: float,
    hashing_threads: int,
    weights: Table,
    scale: float,
    bias: Floats,
    slots: Indices | None,
    n_threads: int,
    table_bits: int = 0,
    n_columns: int = 0,
) -> Floats | None: ...
def hash_texts(texts: Texts, key: int) -> npt.NDArray[np.uint64]: ...
def number_texts(texts: Texts) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]: ...
def mix_hashes(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]: ...
def hash_key(name: str, seed: int) -> int: ...
def is_utf8(text: bytes) -> bool: ...
def split_words(document: str | bytes, lowercase: bool, min_letters: int) -> list[str]: ...
def first_no_text(texts: list[Any]) -> int: ...
def first_too_large(numbers: Floats) -> int: ...
def write_integers(numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]: ...
def embedding_learn(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    weight: npt.NDArray[np.float64] | None,
    order: npt.NDArray[np.int64] | None,
    target_start: npt.NDArray[np.int64] | None,
    targets: npt.NDArray[np.int32],
    table: npt.NDArray[np.float32],
    head: npt.NDArray[np.float32],
    n_outputs: int,
    way_start: npt.NDArray[np.int64],
    way_node: npt.NDArray[np.int32],
    way_side: npt.NDArray[np.float32],
    children: npt.NDArray[np.int32],
    top_down: npt.NDArray[np.int32],
    sample: npt.NDArray[np.int32],
    loss: int,
    eta0: float,
    total: float,
    half: float,
    negatives: int,
    seed: int,
    t: float,
    fresh: npt.NDArray[np.int32],
    n_threads: int,
    n_replicas: int = 1,
    rows_each: int = 0,
) -> tuple[int, int, float, float, int]: ...
def embedding_scores(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    order: npt.NDArray[np.int64] | None,
    table: npt.NDArray[np.float32],
    head: npt.NDArray[np.float32],
    n_outputs: int,
    way_start: npt.NDArray[np.int64],
    way_node: npt.NDArray[np.int32],
    way_side: npt.NDArray[np.float32],
    children: npt.NDArray[np.int32],
    top_down: npt.NDArray[np.int32],
    out: npt.NDArray[np.float32],
    n_threads: int,
) -> int: ...
def embedding_hidden(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    order: npt.NDArray[np.int64] | None,
    table: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    n_threads: int,
) -> int: ...
def dual_sweep(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    state: npt.NDArray[np.float64],
    w: npt.NDArray[Any],
    bias: npt.NDArray[np.float64],
    active: npt.NDArray[np.int64],
    n_active: int,
    *,
    loss: int,
    parameter: float,
    bias_step: float,
    least_slope: float,
    most_slope: float,
    relax: float,
    seed: int,
) -> tuple[int, int, float, float, float]: ...
def dual_gather(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    amount: npt.NDArray[np.float64],
    w: npt.NDArray[np.float64],
) -> int: ...
def row_squares(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    squares: npt.NDArray[np.float64],
) -> None: ...
def saga_epoch(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    y: npt.NDArray[np.float64],
    share: npt.NDArray[np.float64],
    order: npt.NDArray[np.int64],
    slopes: npt.NDArray[np.float64],
    features: npt.NDArray[np.float64],
    bias: npt.NDArray[np.float64],
    *,
    loss: int,
    parameter: float,
    eta: float,
    l1: float,
    l2: float,
    fit_intercept: bool,
) -> int: ...
def transpose(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    out_indptr: npt.NDArray[np.int64],
    out_indices: npt.NDArray[np.int32],
    out_values: npt.NDArray[np.float32],
) -> None: ...
def cd_cycles(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    set: npt.NDArray[np.int64],
    gradient: npt.NDArray[np.float64],
    diagonal: npt.NDArray[np.float64],
    w: npt.NDArray[np.float64],
    u: npt.NDArray[np.float32],
    h: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float64],
    *,
    bias_slope: float,
    l1: float,
    l2: float,
    fit_intercept: bool,
    cycles: int,
    enough: float,
) -> float: ...
def cd_diagonal(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32],
    set: npt.NDArray[np.int64],
    h: npt.NDArray[np.float32],
    diagonal: npt.NDArray[np.float64],
) -> None: ...

# ------------------------------------------------------------------------------------------------------------- factors

Rows = npt.NDArray[np.float32]

class FactorChoices:
    def __init__(
        self,
        *,
        loss: int,
        mean: float,
        eta: float,
        l2: float,
        l2_bias: float,
        l1: float,
        rank: int,
        adaptive: bool,
        biases: bool,
        nonnegative: bool,
    ) -> None: ...

def factor_init(table: Rows, first: int, rank: int, seed: int, scale: float) -> None: ...
def factor_pack(
    users: Indices,
    items: Indices,
    values: Values,
    weights: Values | None,
    user_places: Indices,
    item_places: Indices,
    user_bounds: Ints,
    item_bounds: Ints,
    seed: int,
    out_users: Indices,
    out_items: Indices,
    out_values: Values,
    out_weights: Values | None,
    offsets: Ints,
    before: int = 0,
) -> None: ...
def factor_sgd(
    users: Indices,
    items: Indices,
    values: Values,
    weights: Values | None,
    offsets: Ints,
    schedule: Indices,
    user_table: Rows,
    item_table: Rows,
    choices: FactorChoices,
    losses: Floats,
    n_threads: int,
) -> int: ...
def factor_sgd_blocks(
    users: Indices,
    items: Indices,
    values: Values,
    weights: Values | None,
    offsets: Ints,
    schedule: Indices,
    user_bounds: Ints,
    item_bounds: Ints,
    user_table: Rows,
    item_table: Rows,
    choices: FactorChoices,
    losses: Floats,
    n_threads: int,
) -> int: ...
def factor_bpr(
    users: Indices,
    items: Indices,
    values: Values,
    weights: Values | None,
    offsets: Ints,
    schedule: Indices,
    item_bounds: Ints,
    liked_indptr: Ints,
    liked_indices: Indices,
    seed: int,
    user_table: Rows,
    item_table: Rows,
    choices: FactorChoices,
    losses: Floats,
    n_threads: int,
) -> int: ...
def factor_pairs(
    users: Indices, items: Indices, user_table: Rows, item_table: Rows, mean: float, scores: Values, n_threads: int
) -> int: ...
def factor_als(
    indptr: Ints,
    indices: Indices,
    values: Values,
    weights: Values | None,
    other: Rows,
    gram: Rows | None,
    ridge: Values,
    rank: int,
    cg_steps: int,
    bias_at: int,
    bias_ridge: float,
    implicit: bool,
    nonnegative: bool,
    solved: Rows,
    n_threads: int,
) -> int: ...
def factor_kl(
    indptr: Ints,
    indices: Indices,
    values: Values,
    other: Rows,
    sums: Values,
    steps: int,
    with_loss: bool,
    solved: Rows,
    n_threads: int,
) -> tuple[int, float]: ...
def factor_gram(rows: Rows, gram: Rows, n_threads: int) -> None: ...
def factor_top(
    users: Rows,
    items: Rows,
    bias: Values,
    excluded_indptr: Ints | None,
    excluded: Indices,
    scores: Rows,
    best: Indices,
    n_threads: int,
) -> None: ...
