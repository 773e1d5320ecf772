"""Steps of training a classifier: what they compute, on one device as on several."""

import os
import pickle
import socket
import subprocess
import sys
import textwrap
from functools import cache, partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gconv_jax as gj
from gconv_jax.training import parallel
from gconv_jax.training.classification import (
    Augmentation,
    amsgrad,
    as_examples,
    create_train_state,
    eval_step,
    fingerprint,
    make_advance,
    train_step,
)

BASIS = gj.make_basis("weiler", orientations=4)


@pytest.fixture(scope="module")
def data():
    """Images of 8 x 8 pixels whose brighter half tells the class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=60).astype(np.int32)
    images = rng.integers(0, 100, size=(60, 8, 8, 1))
    images[labels == 1, :, :4] += 100
    return gj.data.Images(images.astype(np.uint8), labels)


def start(data, network=None, basis=BASIS, **options):
    network = network or gj.GroupAllCNN(num_classes=2, widths=(2, 3))
    state = create_train_state(network, data.images[:1], basis, steps_per_epoch=6, **options)
    return parallel.everywhere(state), parallel.everywhere(as_examples(data, data))


def batches(steps, batch=10):
    plan = gj.data.Plan(60, batch, seed=1)
    return np.stack([plan.batch(epoch=i // 6, step=i % 6)[0] for i in range(steps)])


def test_amsgrad_is_that_of_pytorch(rng):
    """By the loop of torch.optim.Adam(amsgrad=True, weight_decay=...)."""
    w = rng.normal(size=5)
    gradients = rng.normal(size=(20, 5)) * np.linspace(3, 0.1, 20)[:, None]
    rate, decay = 1e-2, 0.1
    tx = optax.chain(optax.add_decayed_weights(decay), amsgrad(rate))
    ours = jnp.asarray(w, jnp.float32)
    state = tx.init(ours)
    m, v, largest = np.zeros(5), np.zeros(5), np.zeros(5)
    for t, g in enumerate(gradients, start=1):
        updates, state = tx.update(jnp.asarray(g, jnp.float32), state, ours)
        ours = optax.apply_updates(ours, updates)
        g = g + decay * w
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        largest = np.maximum(largest, v)
        w = w - rate * m / (1 - 0.9**t) / (np.sqrt(largest / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(ours, w, rtol=1e-5)


def test_a_step_computes_what_it_says(data):
    """Against the network applied by hand: loss, accuracy, gradient, statistics and position."""
    augmentation = Augmentation(flip=True, translate=2, rotation="90")
    state, examples = start(data, weight_decay=0.1, learning_rate=1e-2)
    old = jax.device_get(state)
    [row] = batches(1)
    step = parallel.data_parallel(partial(train_step, augmentation=augmentation), common=2)
    new, metrics = step(state, examples, parallel.shares(row))

    key = jax.random.fold_in(jax.random.wrap_key_data(old.key), 0)
    mean, std = gj.data.colour_statistics(data.images)
    x = gj.data.augment(
        data.images[row],
        gj.data.image_keys(key, row),
        mean=mean,
        std=std,
        **augmentation._asdict(),
    )
    network = gj.GroupAllCNN(num_classes=2, widths=(2, 3))

    def loss_of(params):
        variables = {"params": params, "batch_stats": old.batch_stats}
        logits, updates = network.apply(variables, x, BASIS, train=True, mutable=["batch_stats"])
        chosen = jax.nn.log_softmax(logits)[np.arange(10), data.labels[row]]
        return -chosen.mean(), (logits, updates["batch_stats"])

    (loss, (logits, stats)), gradient = jax.jit(jax.value_and_grad(loss_of, has_aux=True))(
        old.params
    )
    assert float(metrics["loss"]) == pytest.approx(float(loss), rel=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx(
        np.mean(np.argmax(logits, -1) == data.labels[row])
    )
    norm = np.sqrt(sum(np.sum(g**2) for g in jax.tree.leaves(gradient)))
    assert float(metrics["gradient_norm"]) == pytest.approx(norm, rel=1e-4)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), new.batch_stats, stats)
    for w, g, result in zip(*map(jax.tree.leaves, (old.params, gradient, new.params)), strict=True):
        pulled = np.asarray(g + 0.1 * w)
        sure = np.abs(pulled) > 1e-4  # the first step is the rate times the sign of the gradient
        np.testing.assert_allclose(
            result[sure], (w - 1e-2 * np.sign(pulled))[sure], rtol=1e-3, atol=1e-5
        )
    assert int(new.step) == 1
    assert tuple(map(int, new.position)) == (0, 1)
    np.testing.assert_array_equal(new.basis, BASIS)


def test_it_learns_and_counts_epochs(data):
    state, examples = start(data, learning_rate=1e-2)
    advance = make_advance(augmentation=Augmentation(), most=40)
    state, fetch = advance(state, examples, batches(40))
    records = fetch()
    assert len(records) == 40
    assert np.mean([r["loss"] for r in records[-5:]]) < 0.5 * records[0]["loss"]
    assert tuple(map(int, state.position)) == (6, 4)
    assert int(state.step) == 40


@pytest.mark.parametrize("at_once", [True, False])
def test_rounds_of_any_length_give_the_same_to_the_bit_and_compile_once(data, caplog, at_once):
    advance = make_advance(augmentation=Augmentation(translate=1), most=6, at_once=at_once)
    begun, examples = start(data)
    begun, rows = jax.tree.map(np.array, begun), batches(9)
    results = []
    with jax.log_compiles():
        for cuts in ((0, 1, 3, 9), (0, 6, 9)):
            state, records = parallel.everywhere(begun), []
            for i, j in pairwise(cuts):
                old = state
                state, fetch = advance(state, examples, rows[i:j])
                records += fetch()
                assert old.params["head"]["kernel"].is_deleted()  # its memory was taken over
            results.append((fingerprint(state), records))
    assert results[0] == results[1]
    compiled = [line for line in caplog.messages if "XLA compilation of jit(_fun)" in line]
    assert len(compiled) == 1


def test_both_ways_of_taking_rounds_agree(data):
    results = []
    for at_once in (True, False):
        state, examples = start(data)
        advance = make_advance(augmentation=Augmentation(), most=3, at_once=at_once)
        state, fetch = advance(state, examples, batches(3))
        results.append((jax.device_get(state.params), [r["loss"] for r in fetch()]))
    assert difference(*results) < 1e-5


DEVICES = """
    import sys, pickle, jax, jax.numpy as jnp, numpy as np
    begun, path, devices, dtype, synchronised, *rest = sys.argv[1:]
    coordinator, processes, process = rest or [None, 1, 0]
    devices, processes, process = int(devices), int(processes), int(process)
    jax.config.update("jax_enable_x64", dtype == "float64")
    import gconv_jax as gj
    from pathlib import Path
    from gconv_jax.training import parallel
    from gconv_jax.training.classification import *
    if coordinator:
        parallel.connect(coordinator, processes, process)
    assert jax.device_count() == devices
    data = gj.data.load("cifar10", source="embedded", size=80)
    data = gj.data.Images(data.images[:, ::2, ::2], data.labels)
    plan = gj.data.Plan(80, 16, seed=0, process=process, processes=processes)
    basis = jnp.asarray(gj.load_basis("partial"), dtype)
    network = gj.GroupAllCNN(widths=(4, 8), dtype=dtype, param_dtype=dtype, plain=True)
    state = create_train_state(network, data.images[:1], basis, steps_per_epoch=5)
    if synchronised == "False":
        state = state.replace(apply_fn=network.apply)
    structure = jax.tree.structure(state)
    examples = parallel.everywhere(as_examples(data, data))
    advance = make_advance(augmentation=Augmentation(True, 4, "full"), most=5)

    def five_steps(state):
        epoch = int(state.position.epoch)
        state = parallel.everywhere(parallel.from_first(jax.device_get(state)))
        indices = np.stack([plan.batch(epoch=epoch, step=i)[0] for i in range(5)])
        return advance(state, examples, indices)[0]

    # Not from the start. The first steps of AMSGrad are the rate times the sign of the gradient,
    # so rounding moves an entry by twice the rate whose gradient is next to nothing.
    begun = Path(f"{begun}-{dtype}")
    if not begun.exists():
        states = []
        for epoch in range(1, 15):
            state = five_steps(state)
            if epoch >= 4 and epoch % 2 == 0:
                states.append(jax.tree.leaves(jax.device_get(state)))
        begun.write_bytes(pickle.dumps(states))
    states = [jax.tree.unflatten(structure, leaves) for leaves in pickle.loads(begun.read_bytes())]
    ends = [jax.device_get(five_steps(state).variables) for state in states]
    if process == 0:
        with open(path, "wb") as file:
            pickle.dump(ends, file)
    """


def with_devices(count):
    return f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"


@pytest.fixture(scope="module")
def train_on(run_python, tmp_path_factory):
    """Trains five steps from each of the same states; returns the variables they end with."""
    folder = tmp_path_factory.mktemp("devices")

    @cache
    def train(devices, dtype="float32", synchronised=True):
        path = folder / f"{devices}-{dtype}-{synchronised}"
        arguments = (folder / "begun", path, devices, dtype, synchronised)
        run_python(DEVICES, *arguments, XLA_FLAGS=with_devices(devices))
        return pickle.loads(path.read_bytes())

    def train_in_two_processes():
        train(1)  # there is a state to begin from
        in_two_processes(DEVICES, folder / "begun", folder / "two", 4, "float32", True)
        return pickle.loads((folder / "two").read_bytes())

    train.in_two_processes = train_in_two_processes
    return train


def in_two_processes(script, *arguments):
    """Runs it in two processes of two devices; after its arguments come address, 2, and which."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
            + [str(argument) for argument in (*arguments, address, 2, process)],
            env=os.environ | {"XLA_FLAGS": with_devices(2)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_two_processes_do_not_wait_for_each_other_for_good():
    in_two_processes(
        """
        import sys
        import jax, numpy as np
        from gconv_jax.training import parallel

        address, processes, process = sys.argv[1:]
        parallel.connect(address, int(processes), int(process))
        step = parallel.data_parallel(
            lambda x: parallel.total({"sum": x.sum(), "positive": (x > 0).sum()}), common=0
        )
        sums = [step(np.full((2, 3), i, np.float32)) for i in range(300)]
        assert [float(s["sum"]) for s in jax.device_get(sums)] == [12.0 * i for i in range(300)]
        """
    )


def relative(a, b):
    """The size of the difference of two arrays, relative to that of the second."""
    return np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(b)


def difference(a, b):
    """The largest relative difference of two trees of arrays, array by array."""
    return max(relative(x, y) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def as_vector(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_several_devices_do_what_one_does(train_on):
    """In float64 every array agrees to its precision: it is the same computation."""
    assert difference(train_on(8, "float64"), train_on(1, "float64")) < 1e-12


@pytest.mark.parametrize("devices", [2, 4, 8, "two processes"])
def test_several_devices_give_the_parameters_of_one(devices, train_on):
    """In float32, but for the odd time that rounding decides which of two equals is a maximum.

    Then a gradient takes another way, and the steps after it magnify that. The order of images
    in the batch alone does the same.
    """
    several = train_on.in_two_processes() if devices == "two processes" else train_on(devices)
    pairs = zip(several, train_on(1), strict=True)
    apart = [relative(*(as_vector(end["params"]) for end in pair)) for pair in pairs]
    assert np.median(apart) < 1e-5, apart
    assert np.max(apart) < 1e-3, apart


def test_without_synchronised_batch_norm_they_would_not(train_on):
    for apart, one in zip(train_on(2, synchronised=False), train_on(1), strict=True):
        for kind in ("params", "batch_stats"):
            assert relative(as_vector(apart[kind]), as_vector(one[kind])) > 1e-3, kind


@pytest.mark.parametrize("network", [gj.GroupAllCNN, gj.AllCNN])
def test_evaluation_counts_every_image_once(data, network):
    basis = BASIS if network is gj.GroupAllCNN else None
    state, examples = start(data, network(num_classes=2, widths=(2, 3)), basis)
    advance = make_advance(augmentation=Augmentation(), most=5)
    state, _ = advance(state, examples, batches(5))
    plan = gj.data.Plan(60, 16, last="pad")
    net = network(num_classes=2, widths=(2, 3))
    step = parallel.data_parallel(partial(eval_step, net), common=3, batches=2)
    sums = {"loss": 0.0, "correct": 0, "seen": 0}
    for i in range(plan.steps):
        shares = parallel.shares(plan.batch(epoch=0, step=i))
        part = step(state.variables, state.basis, examples, *shares)
        sums = {name: sums[name] + part[name].item() for name in sums}
    mean, std = gj.data.colour_statistics(data.images)
    x = gj.data.normalise(data.images, mean=mean, std=std)
    inputs = [] if basis is None else [basis]
    logits = np.asarray(jax.jit(net.apply)(state.variables, x, *inputs))
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(60), data.labels]
    assert sums["seen"] == 60
    assert sums["correct"] == (logits.argmax(-1) == data.labels).sum()
    assert sums["loss"] == pytest.approx(losses.sum(), rel=1e-4)


def test_bfloat16_computes_in_it_and_keeps_float32(data):
    losses = {}
    for dtype in (None, jnp.bfloat16):
        network = gj.GroupAllCNN(num_classes=2, widths=(2, 3), dtype=dtype)
        state, examples = start(data, network, learning_rate=1e-2)
        advance = make_advance(augmentation=Augmentation(), most=30)
        state, fetch = advance(state, examples, batches(30))
        losses[dtype] = np.asarray([r["loss"] for r in fetch()])
        for leaf in jax.tree.leaves((state.variables, state.opt_state)):
            assert leaf.dtype in (jnp.float32, jnp.int32)
    assert losses[None][0] != losses[jnp.bfloat16][0]
    assert losses[jnp.bfloat16][0] == pytest.approx(losses[None][0], rel=0.1)
    assert losses[jnp.bfloat16][-5:].mean() < 0.5 * losses[jnp.bfloat16][0]


def test_the_seed_decides(data):
    one, same, other = (fingerprint(start(data, seed=s)[0].params) for s in (0, 0, 1))
    assert one == same != other


def test_fingerprints_tell_names_types_shapes_and_signs_apart():
    a = np.zeros(4, np.float32)
    trees = [{"a": a}, {"b": a}, {"a": a.reshape(2, 2)}, {"a": a.view(np.int32)}, {"a": -a}]
    assert len({fingerprint(tree) for tree in trees}) == len(trees)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("here:1", None, 0), "must be given together, but got here:1, None and 0"),
        ((None, 2, 0), "must be given together"),
        (("here:1", 2, 2), "process_id must be at least 0 and less than num_processes = 2"),
    ],
)
def test_processes_that_do_not_add_up_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        parallel.connect(*arguments)
