"""What may go wrong, each with one sentence that names the place, the value and the way out."""

from __future__ import annotations

import errno

_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class DataError(ValueError):
    """The data cannot be used; the message names the file, line and value, and what to do.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier().fit([[1.0], [2.0]], ["a", "a"])
    Traceback (most recent call last):
    steepest.errors.DataError: y holds one class only, 'a'; give rows of another class as well, or choose another label
    """


class NotANumberError(DataError, TypeError):
    """Values that are not numbers where numbers are needed; scikit-learn's users expect a TypeError."""


class ModelFileError(DataError):
    """A model file is damaged, of another version, or not a model file at all.

    Examples
    --------
    >>> import steepest as st, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "m.steepest"
    >>> _ = path.write_bytes(b"not a model")
    >>> try:
    ...     st.load(path)
    ... except st.ModelFileError:
    ...     print("refused")
    refused
    """


class ParameterError(ValueError):
    """A parameter has an invalid value; the message names the parameter and the choices.

    Examples
    --------
    >>> import steepest as st
    >>> st.LinearClassifier(penalty="l3").fit([[1.0], [2.0]], [0, 1])
    Traceback (most recent call last):
    steepest.errors.ParameterError: penalty='l3' is unknown; choose one of none, l2, l1, elasticnet, lp, norm2, max
    """


class NotConverged(UserWarning):
    """A solver stopped before it reached its tolerance; the message says how close it came and what to change.

    Examples
    --------
    >>> import warnings, steepest as st
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", st.NotConverged)  # turns the warning into an error
    ...     model = st.LinearRegressor(solver="cg", tol=1e-6).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[3.0]]).round(3).tolist()
    [7.0]
    """


class ColumnWarning(UserWarning):
    """A suspicious column of a table: it looks like an id, or it alone predicts the label almost perfectly.

    Examples
    --------
    >>> import warnings, steepest as st
    >>> rows = [{"size": i % 7, "paid": "yes" if i % 2 else "no"} for i in range(200)]
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     _ = st.Hasher().survey(rows, [i % 2 for i in range(200)])
    >>> str(seen[0].message).partition(":")[0]
    "column 'paid' alone predicts the label almost perfectly"
    """


def is_of_the_system(error: BaseException | None) -> bool:
    """Whether the system failed, and not the data: no memory, no threads, or a disk that is full or broken."""
    plain = type(error).__name__ == "ArrowException"  # not a subclass: what Arrow itself did not foresee
    plain |= isinstance(error, RuntimeError) and "start new thread" in str(error)
    return plain or isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _FAILURES)
