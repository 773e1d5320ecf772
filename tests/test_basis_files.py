"""save_basis, load_basis and what ships: whole, self-describing, and as good as the card says."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import gconv_jax as gj
from gconv_jax.bases import files

SHIPPED = sorted(path.name for path in files._FOLDER.iterdir() if path.name.endswith(".npz"))


def parse(file):
    name, g, k = file.removesuffix(".npz").rsplit("_", 2)
    return name, {"orientations": int(g[1:]), "kernel_size": int(k[1:])}


@pytest.fixture(scope="module")
def images():
    data = gj.data.load("cifar10", split="test", source="embedded", size=100)
    mean, std = gj.data.colour_statistics(data.images)
    return np.asarray(gj.data.normalise(data.images, mean=mean, std=std))


def test_what_ships():
    assert {parse(file)[0] for file in SHIPPED} == set(files.PRETRAINED)
    closed = {tuple(o.values()) for n, o in map(parse, SHIPPED) if n == "closed_form"}
    assert closed == {(8, 3), (8, 5), (8, 7), (16, 3), (16, 5), (16, 7), (4, 3), (12, 3)}


@pytest.mark.parametrize("file", SHIPPED)
def test_each_is_what_its_card_says(file, images):
    name, options = parse(file)
    basis, card = gj.load_basis(name, **options), gj.basis_card(name, **options)
    g, n, k, _ = basis.shape
    assert {"orientations": g, "kernel_size": k} == options
    assert n == (3 if name == "overcomplete" else 1) * k * k
    assert (card["name"], card["orientations"], card["kernel_size"]) == (name, g, k)
    assert card["command"].startswith("python -m experiments.pretrain")
    assert "CIFAR-10" in card["data"]
    assert card["version"]
    quality = gj.basis_quality(basis, images)
    # Other images than the card's: the error is alike, and the rest does not depend on them.
    assert quality.error == pytest.approx(card["quality"]["error"], rel=0.15, abs=1e-6)
    assert quality.condition_number == pytest.approx(card["quality"]["condition_number"], rel=1e-3)
    assert quality.residual == pytest.approx(card["quality"]["residual"], abs=1e-3)
    np.testing.assert_array_equal(gj.make_basis(name, **options), basis)


def test_the_bars():
    exact = gj.basis_card("closed_form")["quality"]
    assert exact["error"] <= 0.0050
    assert exact["condition_number"] <= 1.0001
    assert exact["residual"] <= 1e-4
    bars = {"partial": (1.25, 1.05, 0.05), "full": (1.5, 1.1, 0.2), "overcomplete": (1.5, 1.1, 0.2)}
    for name, (times, condition, residual) in bars.items():
        card = gj.basis_card(name)
        assert len(card["seeds"]["error"]["values"]) == 3
        # No seed collapses: the worst of the three meets the bar.
        assert max(card["seeds"]["error"]["values"]) <= times * exact["error"]
        assert max(card["seeds"]["condition_number"]["values"]) <= condition
        assert max(card["seeds"]["residual"]["values"]) <= residual


@pytest.mark.parametrize("name", ["partial", "closed_form"])
def test_partial_ones_are_exact_at_quarter_turns(name):
    basis = np.asarray(gj.load_basis(name))
    np.testing.assert_array_equal(np.roll(basis, -2, axis=0), np.rot90(basis, axes=(2, 3)))


def test_round_trip(tmp_path, rng):
    basis = rng.normal(size=(4, 5, 3, 3)).astype(np.float32)
    card = {"command": "by hand", "quality": {"error": 0.5}, "seeds": [1, 2], "none": None}
    gj.save_basis(tmp_path / "mine.npz", basis, card=card)
    np.testing.assert_array_equal(gj.load_basis(tmp_path / "mine.npz"), basis)
    assert gj.load_basis(str(tmp_path / "mine.npz"), dtype=jnp.bfloat16).dtype == jnp.bfloat16
    assert gj.basis_card(tmp_path / "mine.npz") == card
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]
    with np.load(tmp_path / "mine.npz", allow_pickle=False) as plain:  # readable by anyone
        assert plain["basis"].shape == basis.shape
        assert json.loads(str(plain["card"])) == card


def test_truncated_anywhere(tmp_path):
    path = tmp_path / "cut.npz"
    gj.save_basis(path, gj.make_basis("weiler"), card={})
    whole = path.read_bytes()
    for size in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"cut\.npz is not a whole \.npz file .*; get it anew"):
            gj.load_basis(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    path.write_bytes(flipped)
    with pytest.raises(ValueError, match=r"cut\.npz is not a whole \.npz file"):
        gj.load_basis(path)


def test_foreign_files(tmp_path, rng):
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    with pytest.raises(ValueError, match=r"other\.npz is not a basis .* it holds weights"):
        gj.load_basis(tmp_path / "other.npz")
    np.save(tmp_path / "array.npy", np.ones(3))
    with pytest.raises(ValueError, match=r"array\.npy is not a whole \.npz"):
        gj.load_basis(tmp_path / "array.npy")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.npz is not a whole \.npz"):
        gj.load_basis(tmp_path / "text.npz")
    common = {"format": np.array(files.FORMAT), "card": np.array("{}")}
    np.savez(tmp_path / "shape.npz", basis=rng.normal(size=(6, 9, 3, 3)), **common)
    with pytest.raises(ValueError, match=r"the basis in .*shape\.npz.* multiple of 4"):
        gj.load_basis(tmp_path / "shape.npz")
    np.savez(tmp_path / "nan.npz", basis=np.full((4, 9, 3, 3), np.nan), **common)
    with pytest.raises(ValueError, match=r"nan\.npz has NaN"):
        gj.load_basis(tmp_path / "nan.npz")
    np.savez(tmp_path / "pickle.npz", basis=np.array([object()]), **common)
    with pytest.raises(ValueError, match=r"pickle\.npz is not a whole"):
        gj.load_basis(tmp_path / "pickle.npz")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gj.load_basis("partail"), "name must be one of 'partial', .* got 'partail'"),
        (lambda: gj.load_basis("partial", kernel_size=5), "does not ship .* only as partial_g8_k3"),
        (lambda: gj.make_basis("full", orientations=16), "does not ship for orientations = 16"),
        (lambda: gj.save_basis("x.txt", gj.make_basis("weiler"), card={}), r"must end in \.npz"),
        (
            lambda: gj.save_basis("no/x.npz", gj.make_basis("weiler"), card={}),
            "folder that is",
        ),
        (lambda: gj.save_basis("x.npz", np.ones((8, 9, 3)), card={}), "basis must have shape"),
        (lambda: gj.save_basis("x.npz", np.full((4, 1, 3, 3), np.inf), card={}), "must be finite"),
        (
            lambda: gj.save_basis("x.npz", gj.make_basis("weiler"), card={"a": object()}),
            "card must be what JSON can hold",
        ),
    ],
)
def test_bad_input(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        call()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file(tmp_path, run_python):
    path = tmp_path / "mine.npz"
    gj.save_basis(path, gj.make_basis("weiler"), card={"version": 1})
    out = run_python(
        """
        import resource, signal, sys, gconv_jax as gj
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        basis = gj.make_basis("random", kernel_size=7)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            gj.save_basis(sys.argv[1], basis, card={"version": 2})
        except OSError as error:
            print("refused:", error)
        """,
        path,
    )
    assert "refused" in out
    assert gj.basis_card(path) == {"version": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["mine.npz"]
