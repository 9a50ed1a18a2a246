"""Have I seen this key? For thousands to billions of keys, in a fraction of their memory.

>>> import inbloom
>>> seen = inbloom.Filter(1_000_000, 0.001)  # 1 million keys, 0.1% false positives
>>> seen.add("alice")  # True: certainly new
True
>>> "alice" in seen, "bob" in seen  # False is certain, True is probable
(True, False)

Batches are the fast way in: Filter.add_many and Filter.contains_many take lists, columns of Arrow
(pyarrow, polars, pandas) and numpy's arrays. Files are those of the inbloom command, server and Rust
library. inbloom.scrapy has filters of duplicate requests for Scrapy.
"""

from inbloom._inbloom import Answers, Filter, __version__, build, from_bytes, open, plan
from inbloom.exceptions import (
    ClosedError,
    Error,
    FormatError,
    FullError,
    MismatchError,
    ParameterError,
    ReadOnlyError,
    SecretError,
    UnsupportedError,
)
from inbloom.frames import isin

__all__ = [
    "Answers",
    "ClosedError",
    "Error",
    "Filter",
    "FormatError",
    "FullError",
    "MismatchError",
    "ParameterError",
    "ReadOnlyError",
    "SecretError",
    "UnsupportedError",
    "__version__",
    "build",
    "from_bytes",
    "isin",
    "open",
    "plan",
]
