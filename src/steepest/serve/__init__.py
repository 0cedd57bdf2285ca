"""A model behind HTTP: predictions, explanations, learning that survives, metrics, and a page to try it.

`run` in `server.py` is the entry; `steepest serve` calls it. From the socket inwards: `connection.py` reads HTTP,
`app.py` finds the route, `rows.py` reads rows, `predictor.py` asks the model, `learning.py` writes rows to `row_log.py`
before it learns them, `counters.py` counts, `drift.py` watches. Nothing in a request ever names a file.
"""
