"""The kernel table: typed Python names for the native inner loops.

`steepest.kernels.reference` holds the slow, obvious NumPy definition of each, `steepest.kernels.reference_text` that of
the text kernel; the tests compare the two.
"""

from __future__ import annotations

from steepest._native import (
    Choices,
    HashOptions,
    NameTable,
    first_no_text,
    hash_id,
    hash_key,
    hash_rows,
    hash_texts,
    isa,
    linear_adagrad,
    linear_ftrl,
    linear_scores,
    linear_settle,
    linear_sgd,
    loss_value_slope,
    mix_hashes,
    network_densify,
    network_forward,
    network_gather,
    network_multiply,
    network_scores,
    network_settle,
    network_update,
    parse_libsvm,
    parse_vw,
    sampled_buckets,
    split_words,
    write_integers,
)

__all__ = [
    "Choices",
    "HashOptions",
    "NameTable",
    "first_no_text",
    "hash_id",
    "hash_key",
    "hash_rows",
    "hash_texts",
    "isa",
    "linear_adagrad",
    "linear_ftrl",
    "linear_scores",
    "linear_settle",
    "linear_sgd",
    "loss_value_slope",
    "mix_hashes",
    "network_densify",
    "network_forward",
    "network_gather",
    "network_multiply",
    "network_scores",
    "network_settle",
    "network_update",
    "parse_libsvm",
    "parse_vw",
    "sampled_buckets",
    "split_words",
    "write_integers",
]
