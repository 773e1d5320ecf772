"""Cuts the subsets that ship with the package out of the verified sets.

    python -m experiments.embed_subsets

It takes a few seconds once the sets are prepared (`make data`), and rewrites the pictures and
labels in `gconv_jax/data/subsets`, with the same images whenever it runs.
"""

from gconv_jax.data import embedded, load


def main() -> None:
    embedded.DIRECTORY.mkdir(exist_ok=True)
    for name in ("cifar10", "mnist"):
        for part in embedded.SIZES:
            split = "train+validation" if part == "train" else part
            data = load(name, split=split, source="prepared")
            embedded.write(name, part, data, embedded.DIRECTORY)
            path = embedded.DIRECTORY / f"{name}_{part}.png"
            print(f"{path.name}: {embedded.SIZES[part]} images, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
