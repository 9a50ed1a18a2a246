"""Membership of whole columns, in the type that they came in."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from inbloom._inbloom import Filter


def isin(values: Any, filter: Filter) -> Any:
    """Returns, for each value of a column, whether it is probably in the filter.

    The result is of the column's library: a boolean array of numpy for one of numpy, a Series of
    pandas (with its index and name) or polars for a Series, an array of pyarrow for one of
    pyarrow. Of anything else it is Answers. A missing value is never in the filter.

    >>> import inbloom
    >>> seen = inbloom.build(["alice", "bob"], 1e-6)
    >>> list(inbloom.isin(["alice", "carol"], seen))
    [True, False]
    """
    library = type(values).__module__.partition(".")[0]
    if library == "numpy":
        return _as_numpy(filter.contains_many(values))
    if library == "pandas":
        return _isin_pandas(values, filter)
    if library == "polars":
        polars = import_module("polars")
        return polars.Series(values.name, _as_numpy(filter.contains_many(values)))
    if library == "pyarrow":
        return _isin_pyarrow(values, filter)
    return filter.contains_many(values)


def _as_numpy(answers: Any) -> Any:
    return import_module("numpy").asarray(answers)


def _isin_pandas(values: Any, filter: Filter) -> Any:
    pandas = import_module("pandas")
    kept = values.to_numpy() if _is_numpy_integers(values) else values
    if values.dtype == object:
        # Missing values among Python's objects are None or a float.
        missing = values.isna().to_numpy()
        found = _as_numpy(filter.contains_many(values[~missing].tolist()))
        answers = ~missing
        answers[answers] = found
    else:
        answers = _as_numpy(filter.contains_many(kept))
    if isinstance(values, pandas.Index):
        return answers
    return pandas.Series(answers, index=values.index, name=values.name)


def _is_numpy_integers(values: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(values.dtype, numpy.dtype) and values.dtype.kind in "iu"


def _isin_pyarrow(values: Any, filter: Filter) -> Any:
    pyarrow = import_module("pyarrow")
    if isinstance(values, pyarrow.ChunkedArray):
        chunks = [_isin_pyarrow(chunk, filter) for chunk in values.chunks]
        return pyarrow.chunked_array(chunks, type=pyarrow.bool_())
    return pyarrow.array(_as_numpy(filter.contains_many(values)))
