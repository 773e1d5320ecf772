"""Batches: the same for the same seed, however many processes or devices share them."""

import gc
import threading

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gconv_jax as gj
from gconv_jax.data import Plan, Position


@pytest.fixture(scope="module")
def data():
    return gj.data.load("mnist", split="test", source="embedded")


def indices(plan, epoch):
    return np.concatenate([plan.batch(epoch=epoch, step=s)[0] for s in range(plan.steps)])


@given(st.integers(1, 50), st.integers(1, 4), st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_shards_put_together_are_the_batch_of_one_process(n, share, processes, epoch, shuffled):
    options = {"seed": 7 if shuffled else None, "last": "pad"}
    one = Plan(n, share * processes, **options)
    parts = [
        Plan(n, share * processes, **options, process=p, processes=processes)
        for p in range(processes)
    ]
    for step in range(one.steps):
        expected = one.batch(epoch=epoch, step=step)
        found = [part.batch(epoch=epoch, step=step) for part in parts]
        assert all(len(i) == share for i, _ in found)
        for k in range(2):
            np.testing.assert_array_equal(np.concatenate([f[k] for f in found]), expected[k])


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2), st.sampled_from([None, 0, 5]))
def test_padded_epochs_hold_every_image_once(n, batch_size, epoch, seed):
    plan = Plan(n, batch_size, seed=seed, last="pad")
    seen = []
    for step in range(plan.steps):
        found, mask = plan.batch(epoch=epoch, step=step)
        assert found.shape == mask.shape == (batch_size,)
        assert found.dtype == np.int32
        seen += found[mask].tolist()
    assert sorted(seen) == list(range(n))
    if seed is None:
        assert seen == list(range(n))


@given(st.integers(1, 60), st.integers(1, 20))
def test_dropped_epochs_hold_no_image_twice(n, batch_size):
    if batch_size > n:
        with pytest.raises(ValueError, match="batch_size must be at most n"):
            Plan(n, batch_size)
        return
    plan = Plan(n, batch_size, seed=0)
    found = indices(plan, 0)
    assert len(found) == n // batch_size * batch_size == len(set(found.tolist()))


def test_epochs_and_seeds_differ_and_repeat():
    plan = Plan(100, 10, seed=0)
    first = indices(plan, 0)
    np.testing.assert_array_equal(first, indices(Plan(100, 10, seed=0), 0))
    assert not np.array_equal(first, indices(plan, 1))
    assert not np.array_equal(first, indices(Plan(100, 10, seed=1), 0))
    # Neighbouring seeds and epochs do not share permutations, as seed + epoch would.
    assert not np.array_equal(indices(plan, 1), indices(Plan(100, 10, seed=1), 0))


def test_positions_resume_exactly():
    plan = Plan(10, 3, seed=0)
    every = list(plan.positions(Position(0, 0), 3))
    assert every == [(e, s) for e in range(3) for s in range(3)]
    for i, position in enumerate(every[:-1]):
        assert plan.after(position) == every[i + 1]
        assert list(plan.positions(plan.after(position), 3)) == every[i + 1 :]
    forever = plan.positions(Position(1, 2), None)
    assert [next(forever) for _ in range(3)] == [(1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize("resident", [True, False])
def test_feed_brings_the_right_images(data, resident):
    plan = Plan(500, 120, seed=3, last="pad")
    count = 0
    for position, batch in gj.data.feed(data, plan, epochs=2, resident=resident):
        expected, mask = plan.batch(epoch=position.epoch, step=position.step)
        assert all(isinstance(array, jax.Array) for array in batch)
        np.testing.assert_array_equal(batch.indices, expected)
        np.testing.assert_array_equal(batch.mask, mask)
        np.testing.assert_array_equal(batch.images, data.images[expected])
        np.testing.assert_array_equal(batch.labels, data.labels[expected])
        count += 1
    assert count == 2 * plan.steps == 10


@pytest.mark.parametrize("resident", [True, False])
def test_a_resumed_run_sees_what_the_whole_run_saw(data, resident):
    plan = Plan(500, 100, seed=3)
    whole = list(gj.data.feed(data, plan, epochs=2, resident=resident))
    stopped_after = whole[3][0]
    rest = list(
        gj.data.feed(data, plan, epochs=2, resident=resident, start=plan.after(stopped_after))
    )
    assert [p for p, _ in rest] == [p for p, _ in whole[4:]]
    for (_, a), (_, b) in zip(rest, whole[4:], strict=True):
        np.testing.assert_array_equal(a.images, b.images)


def test_a_resident_set_is_sent_once(data):
    """After the first batch, what goes to the device for a batch is a few hundred bytes."""
    plan = Plan(500, 100, seed=0)
    feed = gj.data.feed(data, plan, epochs=None, resident=True)
    next(feed)
    sent = []
    put = jax.device_put

    def spy(x, *where):
        sent.extend(leaf.nbytes for leaf in jax.tree.leaves(x))
        return put(x, *where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_put", spy)
        for _ in range(3):
            next(feed)
    assert sum(sent) == 3 * 100 * (4 + 1)  # indices and mask


def test_host_batches_are_prepared_ahead_and_the_thread_ends(data):
    plan = Plan(500, 100, seed=0)
    before = threading.active_count()
    feed = gj.data.feed(data, plan, resident=False)
    next(feed)
    assert threading.active_count() == before + 1
    feed.close()
    assert threading.active_count() == before
    feed = gj.data.feed(data, plan, resident=False)
    next(feed)
    del feed
    gc.collect()
    assert threading.active_count() == before


def test_a_failure_in_the_thread_reaches_the_caller(data):
    broken = gj.data.Images(data.images[:3], data.labels)
    with pytest.raises(IndexError, match="out of bounds"):
        list(gj.data.feed(broken, Plan(500, 100), resident=False))


class Device:
    def __init__(self, memory):
        self.memory = memory

    def memory_stats(self):
        return self.memory


def test_fits(data):
    size = data.images.nbytes + data.labels.nbytes
    assert gj.data.fits(data)
    assert gj.data.fits(data, device=Device(None))
    assert gj.data.fits(data, device=Device({"bytes_limit": 4 * size}))
    assert not gj.data.fits(data, device=Device({"bytes_limit": 4 * size - 4}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must be a positive integer, but got 0"),
        ({"batch_size": 2.0}, "batch_size must be a positive integer, but got 2.0"),
        ({"processes": 3}, "batch_size must be a multiple of processes = 3 .* but got 4"),
        ({"process": 1}, "process must be at least 0 and less than processes = 1, but got 1"),
        ({"last": "keep"}, "last must be one of 'drop', 'pad', but got 'keep'"),
        ({"seed": -1}, "seed must be None or an integer from 0, but got -1"),
    ],
)
def test_bad_plans(options, message):
    with pytest.raises(ValueError, match=message):
        Plan(**{"n": 10, "batch_size": 4} | options)


def test_bad_positions(data):
    plan = Plan(500, 100)
    with pytest.raises(ValueError, match=r"step in 0\.\.4, but got epoch 0 and step 5"):
        plan.batch(epoch=0, step=5)
    with pytest.raises(ValueError, match=r"epoch must be at least 0 .* got epoch -1"):
        gj.data.feed(data, plan, start=(-1, 0))
    with pytest.raises(ValueError, match=r"plan must be for the 500 images of data, .* for 400"):
        gj.data.feed(data, Plan(400, 100))
