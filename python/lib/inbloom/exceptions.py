"""What inbloom raises, beside OSError for files, MemoryError, TypeError and OverflowError for keys.

Error
    ParameterError      an argument out of range, or arguments that contradict each other; a ValueError
    FormatError         bytes that are no filter, or a damaged one; a ValueError
    MismatchError       two filters that do not fit together; a ValueError
    SecretError         a filter with a secret, and the secret is missing or another one
    FullError           no room for one more key, or for one more copy of a key
    UnsupportedError    a call that the filter's kind cannot do
        ReadOnlyError   a change to a filter that was opened read-only
    ClosedError         a call of a filter that was closed; a ValueError
"""


class Error(Exception):
    """The base of all that only inbloom raises."""


class ParameterError(Error, ValueError):
    """An argument is out of range, or arguments contradict each other."""


class FormatError(Error, ValueError):
    """Bytes are no filter, or a damaged one."""


class MismatchError(Error, ValueError):
    """Two filters do not fit together: they differ in plan, hash or encoding of keys."""


class SecretError(Error):
    """A filter has a secret, and the secret is missing or another one."""


class FullError(Error):
    """The filter has no room for one more key, or for one more copy of a key."""


class UnsupportedError(Error):
    """The filter's kind cannot do this."""


class ReadOnlyError(UnsupportedError):
    """The filter was opened read-only."""


class ClosedError(Error, ValueError):
    """The filter was closed."""
