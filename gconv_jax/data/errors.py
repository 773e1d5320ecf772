"""What can go wrong between a server, a disk and an array, each told in one sentence."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class DataError(RuntimeError):
    """A data set could not be fetched, written or read; the message says the way out."""


class SourceError(DataError):
    """One source could not serve a set; the next one is tried."""


class NotOfferedError(SourceError):
    """A source that nobody set up, or that has no such set: no news worth a line."""


@contextmanager
def explained(directory: Path, needed: int) -> Iterator[None]:
    """Turns a failure to write below `directory` into one sentence with the way out.

    Args:
      directory: where the data goes, for the message.
      needed: bytes that preparing the set takes, for the message.

    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        # array_record raises a RuntimeError that quotes the message of the operating system.
        code = error.errno if isinstance(error, OSError) else None
        text = str(error)
        if code in _FULL or any(os.strerror(c) in text for c in _FULL):
            raise DataError(
                f"{directory} is full: preparing this set takes about {megabytes(needed)}; make "
                "room there or name another directory in GCONV_DATA_DIR, then run it again."
            ) from error
        if code in _FORBIDDEN:
            raise DataError(
                f"{directory} cannot be written to ({os.strerror(code or 0)}); make it writable or "
                "name another directory in GCONV_DATA_DIR."
            ) from error
        if code in (errno.ENOTDIR, errno.EEXIST):
            raise DataError(
                f"{directory} must be a directory, but a file is in the way ({text}); "
                "remove it or name another directory in GCONV_DATA_DIR."
            ) from error
        raise


def megabytes(size: int) -> str:
    """Returns a number of bytes for the eye of a reader, as in `"170 MB"`."""
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
