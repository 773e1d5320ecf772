"""The official download: one file over HTTP, whole and verified, or not there at all.

The download manager of tensorflow-datasets works without TensorFlow, but it sets no time limit, so
that a server that stalls holds it forever, and on a machine without a network it retries for
minutes. This one gives up in seconds, and goes on where a cut download stopped.
"""

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from gconv_jax.data.errors import SourceError
from gconv_jax.data.sets import Download

TIMEOUT = 20.0  # seconds without a byte
ATTEMPTS = 3
_BLOCK = 1 << 18
_CUT = (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)

# Told the file, how many bytes are there, and of how many.
Progress = Callable[[str, int, int], None]


def fetch(file: Download, directory: Path, progress: Progress | None = None) -> Path:
    """Downloads a file into `directory`, unless it is there, and checks its MD5.

    What has arrived is kept in `<name>.part` and only renamed when it is whole, so a download that
    was cut is continued by the next attempt, or by the next run.

    Args:
      file: what to fetch and its checksum.
      directory: where to put it; made if need be.
      progress: told about every block.

    Returns:
      The path of the whole file.

    Raises:
      SourceError: the server cannot be reached, was cut off, or serves something else.
      OSError: the file cannot be written.

    """
    name = file.url.rsplit("/", 1)[-1]
    directory = directory / file.md5  # two sets may give one name to different files
    whole, part = directory / name, directory / f"{name}.part"
    if not whole.exists():
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _receive(file, part, progress)
                break
            except _CUT as error:
                if attempt == ATTEMPTS:
                    here = part.stat().st_size if part.exists() else 0
                    raise SourceError(
                        f"the download of {file.url} was cut after {here} of {file.size} bytes "
                        f"({_reason(error)}), and a rerun goes on from there"
                    ) from error
        found = _md5_of(part)
        if found != file.md5:
            part.unlink()
            raise SourceError(f"{file.url} has MD5 {found} where {file.md5} is official")
        os.replace(part, whole)
    elif _md5_of(whole) != file.md5:
        whole.unlink()
        return fetch(file, directory.parent, progress)
    return whole


def _receive(file: Download, part: Path, progress: Progress | None) -> None:
    """Appends to `part` what is missing; raises a connection error when the server stops early."""
    start = part.stat().st_size if part.exists() else 0
    if start == file.size:
        return
    request = urllib.request.Request(file.url)
    if 0 < start < file.size:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            raise SourceError(f"{file.url} answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise SourceError(f"{file.url} cannot be reached ({_reason(error)})") from error
    part.parent.mkdir(parents=True, exist_ok=True)
    with response, part.open("ab" if response.status == 206 else "wb") as out:
        received = out.tell()
        while block := response.read(_BLOCK):
            received += len(block)
            if received > file.size:
                raise SourceError(f"{file.url} serves more than the official {file.size} bytes")
            out.write(block)
            if progress:
                progress(file.url.rsplit("/", 1)[-1], received, file.size)
    if received < file.size:
        raise ConnectionError("the server stopped")


def _md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", error)
    return (getattr(inner, "strerror", None) or str(inner) or type(inner).__name__).rstrip(".")
