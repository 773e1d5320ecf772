"""Augmentation against a slow and obvious version, and its independence of the batch."""

import inspect
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gconv_jax as gj

MEAN, STD = np.asarray([0.5, 0.4, 0.3], np.float32), np.asarray([0.2, 0.25, 0.3], np.float32)
COLOURS = {"mean": MEAN, "std": STD}


@pytest.fixture(scope="module")
def images():
    return gj.data.load("cifar10", split="test", source="embedded").images[:40]


@pytest.fixture(scope="module")
def keys():
    return gj.data.image_keys(jax.random.key(0), range(40))


def moved(image, down, right, mirrored):
    """Mirrors, then cuts the moved window out of a wide black border."""
    h, w, _ = image.shape
    image = image[:, ::-1] if mirrored else image
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
    return padded[4 - down : 4 - down + h, 4 - right : 4 - right + w]


def test_flips_and_moves_are_what_they_say(images, keys):
    """Each result is one of the 2 x 81 ways to flip and move, and all kinds of ways occur."""
    out = np.asarray(gj.data.augment(images, keys, **COLOURS, flip=True, translate=4))
    plain = np.asarray(gj.data.normalise(images, **COLOURS))
    ways = [(d, r, m) for d in range(-4, 5) for r in range(-4, 5) for m in (False, True)]
    taken = []
    for image, result in zip(plain, out, strict=True):
        matches = [way for way in ways if np.array_equal(moved(image, *way), result)]
        assert len(matches) == 1
        taken += matches
    downs, rights, mirrors = (set(column) for column in zip(*taken, strict=True))
    assert mirrors == {False, True}
    assert len(downs) >= 7
    assert len(rights) >= 7


def test_draws_are_even():
    """Moves of a dot, over many keys: every place in reach is as likely as any other."""
    n = 8000
    dots = np.zeros((n, 5, 5, 1), np.uint8)
    dots[:, 2, 2] = 255
    keys = gj.data.image_keys(jax.random.key(1), range(n))
    out = gj.data.augment(dots, keys, mean=[0.0], std=[1.0], translate=2)
    counts = np.asarray(out.sum(axis=0)[..., 0])
    assert counts.sum() == pytest.approx(n, rel=1e-5)
    assert abs(counts - n / 25).max() < 4.5 * np.sqrt(n / 25)
    dots[:, 2, 2], dots[:, 2, 0] = 0, 255
    flipped = gj.data.augment(dots, keys, mean=[0.0], std=[1.0], flip=True)
    assert abs(float(flipped[:, 2, 4].sum()) - n / 2) < 4.5 * np.sqrt(n) / 2


def test_outside_is_the_mean_colour(keys):
    """An image of the mean colour stays as it is: nothing darker comes in from outside."""
    grey = np.full((40, 8, 8, 1), 51, np.uint8)
    out = gj.data.augment(
        grey, keys, mean=[0.2], std=[0.5], flip=True, translate=4, rotation="full"
    )
    np.testing.assert_allclose(out, 0, atol=1e-6)


@pytest.mark.parametrize(("rotation", "steps"), [("90", 4), ("45", 8)])
def test_rotations_by_multiples(images, keys, rotation, steps):
    # Colours that need no rounding: two programs may round a sum differently, but not a move.
    colours = {"mean": [0.0] * 3, "std": [1.0] * 3}
    out = np.asarray(gj.data.augment(images, keys, **colours, rotation=rotation))
    plain = gj.data.normalise(images, **colours)
    ways = [np.asarray(gj.rotate(plain, 2 * np.pi * k / steps)) for k in range(steps)]
    taken = set()
    for i in range(len(images)):
        errors = [np.abs(way[i] - out[i]).max() for way in ways]
        taken.add(int(np.argmin(errors)))
        # Quarter turns are exact, to the bit; at 45 degrees the traced angle has its rounding.
        assert min(errors) == 0 if np.argmin(errors) % (steps // 4) == 0 else min(errors) < 1e-4
    assert taken == set(range(steps))


def test_rotation_by_any_angle(keys):
    """A dot off the centre lands all around it, at its distance."""
    n = 400
    dots = np.zeros((n, 17, 17, 1), np.uint8)
    dots[:, 8, 14] = 255
    keys = gj.data.image_keys(jax.random.key(2), range(n))
    out = np.asarray(gj.data.augment(dots, keys, mean=[0.0], std=[1.0], rotation="full"))[..., 0]
    rows, columns = np.mgrid[:17, :17] - 8
    mass = out.sum(axis=(1, 2))
    down, right = (np.einsum("nhw,hw->n", out, axis) / mass for axis in (rows, columns))
    np.testing.assert_allclose(np.hypot(down, right), 6, atol=0.35)
    counts, _ = np.histogram(np.arctan2(down, right), bins=8, range=(-np.pi, np.pi))
    assert abs(counts - n / 8).max() < 4.5 * np.sqrt(n / 8)


def test_an_image_is_augmented_alike_in_any_batch(images, keys):
    """To the bit: the whole batch, its shards, and the images one by one, in another order."""
    options = COLOURS | {"flip": True, "translate": 4, "rotation": "full"}
    whole = np.asarray(gj.data.augment(images, keys, **options))
    order = np.random.default_rng(0).permutation(40)
    for indices in (*np.split(np.arange(40), 4), order, *order[:3, None]):
        part = gj.data.augment(
            images[indices], gj.data.image_keys(jax.random.key(0), indices), **options
        )
        np.testing.assert_array_equal(part, whole[indices])


def test_options_do_not_disturb_each_other_and_epochs_differ(images, keys):
    both = gj.data.augment(images, keys, **COLOURS, flip=True, translate=4)
    move = gj.data.augment(images, keys, **COLOURS, translate=4)
    same = (np.asarray(both) == np.asarray(move)).all(axis=(1, 2, 3))
    assert 8 <= same.sum() <= 32  # the images that are not flipped: about half
    key = jax.random.fold_in(jax.random.key(0), 1)
    other = gj.data.augment(
        images, gj.data.image_keys(key, range(40)), **COLOURS, flip=True, translate=4
    )
    assert not (np.asarray(both) == np.asarray(other)).all(axis=(1, 2, 3)).any()


def test_no_options_is_normalise(images, keys):
    out = gj.data.augment(images, keys, **COLOURS)
    assert out.dtype == jnp.float32
    np.testing.assert_array_equal(out, gj.data.normalise(images, **COLOURS))
    np.testing.assert_allclose(out, (images / 255 - MEAN) / STD, atol=1e-5)


def test_jit_equals_eager_and_vmap_equals_loop(images, keys):
    def f(x, k):
        return gj.data.augment(x, k, **COLOURS, flip=True, translate=4, rotation="45")

    np.testing.assert_array_equal(jax.jit(f)(images, keys), f(images, keys))
    halves = jax.vmap(f)(images.reshape(2, 20, 32, 32, 3), keys.reshape(2, 20))
    np.testing.assert_array_equal(halves.reshape(40, 32, 32, 3), f(images, keys))


def test_two_devices_see_what_one_sees():
    """Gather and augment inside one jit, on a set that is resident on two devices."""
    script = """
        import jax, numpy as np, gconv_jax as gj
        from jax.sharding import NamedSharding, PartitionSpec
        assert jax.device_count() == 2
        data = gj.data.load("cifar10", split="test", source="embedded")
        mean, std = gj.data.colour_statistics(data.images)
        plan = gj.data.Plan(500, 100, seed=0)
        def step(batch, epoch):
            keys = gj.data.image_keys(jax.random.fold_in(jax.random.key(1), epoch), batch.indices)
            return gj.data.augment(batch.images, keys, mean=mean, std=std, flip=True, translate=4,
                                   rotation="full")
        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((2,), ("batch",), axis_types=auto)
        sharding = NamedSharding(mesh, PartitionSpec("batch"))
        for resident in (True, False):
            ones = gj.data.feed(data, plan, epochs=1, device=jax.devices()[0])
            twos = gj.data.feed(data, plan, epochs=1, device=sharding, resident=resident)
            for (p, one), (q, two) in zip(ones, twos, strict=True):
                assert p == q
                assert len(two.images.sharding.device_set) == 2
                out = jax.jit(step)(two, p.epoch)
                assert len(out.sharding.device_set) == 2
                np.testing.assert_array_equal(jax.jit(step)(one, p.epoch), out)
        explicit = NamedSharding(jax.make_mesh((2,), ("batch",)), PartitionSpec("batch"))
        _, batch = next(gj.data.feed(data, plan, device=explicit, resident=True))
        assert len(batch.images.sharding.device_set) == 2
        np.testing.assert_array_equal(batch.images, data.images[plan.batch(epoch=0, step=0)[0]])
        """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_strict_promotion(images, keys):
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        gj.data.augment(images, keys, **COLOURS, flip=True, translate=4, rotation="full")
        gj.data.augment(images, keys, **COLOURS, rotation="45")


def test_colour_statistics(images):
    mean, std = gj.data.colour_statistics(images)
    assert mean.dtype == std.dtype == np.float32
    np.testing.assert_allclose(mean, (images / 255).mean(axis=(0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(std, (images / 255).std(axis=(0, 1, 2)), rtol=1e-5)
    x = np.asarray(gj.data.normalise(images, mean=mean, std=std))
    np.testing.assert_allclose(x.mean(axis=(0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(x.std(axis=(0, 1, 2)), 1, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((40, 8, 8, 3))}, "images must be uint8 .* but got float32"),
        ({"images": np.zeros((8, 8, 3), np.uint8)}, r"images must be .* shape \(8, 8, 3\)"),
        ({"keys": jax.random.key(0)}, r"keys must be .* shape \(40,\), .* image_keys"),
        ({"keys": np.zeros(40, np.uint32)}, "keys must be typed PRNG keys .* but got uint32"),
        ({"mean": 0.5}, r"mean must have one value for each of the 3 .* but got shape \(\)"),
        ({"std": np.ones(1)}, r"std must have one value for each of the 3 .* shape \(1,\)"),
        ({"translate": -1}, "translate must be an integer of at least 0 .* but got -1"),
        ({"translate": 32}, "translate must be .* less than the size 32 .* but got 32"),
        ({"rotation": "30"}, "rotation must be one of 'none', '90', '45', 'full', but got '30'"),
    ],
)
def test_bad_arguments(images, keys, change, message):
    with pytest.raises(ValueError, match=message):
        gj.data.augment(**{"images": images, "keys": keys} | COLOURS | change)


def test_colour_statistics_refuses_what_is_not_images():
    with pytest.raises(ValueError, match=r"images must be at least one image, .* got float64"):
        gj.data.colour_statistics(np.zeros((1, 2, 2, 3)))
    with pytest.raises(ValueError, match="images must be at least one image"):
        gj.data.colour_statistics(np.zeros((0, 2, 2, 3), np.uint8))


FUNCTIONS = [name for name in gj.data.__all__ if inspect.isfunction(getattr(gj.data, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_have_keyword_only_options_and_full_docstrings(name):
    function = getattr(gj.data, name)
    doc = inspect.getdoc(function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty:
            assert parameter.kind == parameter.KEYWORD_ONLY
        assert f"\n  {parameter.name}: " in doc
    assert "Returns:" in doc or "Yields:" in doc
    assert f"gj.data.{name}(" in doc
