"""The memory of a process that computes the same thing again and again: kept, and measured."""

import ctypes
import resource
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of glibc's malloc.h


def keep_memory() -> bool:
    """Lets the process keep what it has freed; returns whether there was a glibc to tell.

    By default glibc gives large blocks back to the system when they are freed, and every step pays
    for them again, page by page. Now those of the main thread stay; those of other threads do too,
    up to 64 MB. (With one arena for all threads every block would stay, but each of XLA's many
    small ones would wait for a lock.)

    It concerns the whole process, so no library should do it by itself; a program may.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2**26}
    return all(mallopt(name, value) for name, value in settings.items())


def give_back() -> None:
    """Gives the system what the process has freed; to be called when programs have been compiled.

    Compiling takes more memory than most programs do, of which they reuse little: it is mostly that
    of other threads. Does nothing where there is no glibc.
    """
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory() -> int:
    """Returns the most bytes that this process has had in memory at once."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
