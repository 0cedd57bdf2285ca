"""Small files of text classifiers: rows as 8-bit numbers, and only those that move scores most."""

from __future__ import annotations

from typing import Any

from steepest.budget import parse_bytes, shown
from steepest.data.chunk import Array
from steepest.data.parameters import ParameterError
from steepest.learners.quantized import bytes_of_rows, pack_rows, rows_by_weight


def smaller(header: dict[str, Any], arrays: dict[str, Array], size: int | str | None) -> dict[str, Array]:
    """Arrays of a file with rows in 8-bit numbers, no more than fit; the header is told of names left out."""
    arrays = dict(arrays)
    rows, table = arrays.pop("rows"), arrays.pop("table")
    if size is not None:
        names = sum(a.nbytes for name, a in arrays.items() if name.startswith("hasher."))
        fixed = 4096 + sum(a.nbytes for a in arrays.values()) + len(str(header))
        budget = parse_bytes(size, "size")
        if names > budget // 4:  # names of words are the first to go
            arrays = {name: a for name, a in arrays.items() if not name.startswith("hasher.names")}
            header["hasher"]["params"]["names"] = 0
            header["params"]["names"] = 0
            fixed = 4096 + sum(a.nbytes for a in arrays.values()) + len(str(header))
        n = (budget - fixed) // bytes_of_rows(1, table.shape[1])
        if n < 1:
            raise ParameterError(
                f"size={size!r} is too small: all but the rows takes {shown(fixed, up=True)}; give more"
            )
        kept = rows_by_weight(table, arrays["head"], int(n))
        rows, table = rows[kept], table[kept]
    return arrays | {"rows": rows, **pack_rows(table)}
