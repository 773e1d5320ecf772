"""Wheel and sdist: they build, hold what they should, and work without the experiments' extras."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gconv_jax as gj

ROOT = Path(__file__).parents[1]


def build(kind, folder):
    """Builds with the locked backend, without a network, and returns the only file made."""
    code = f"import hatchling.build as b; b.build_{kind}({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    [made] = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the wheel's contents and nothing else of this project."""
    wheel = build("wheel", tmp_path_factory.mktemp("wheel"))
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_wheel_holds_the_package_and_nothing_else(installed):
    assert {path.name for path in installed.iterdir()} == {
        "gconv_jax",
        f"gconv_jax-{gj.__version__}.dist-info",
    }
    inside = {str(p.relative_to(installed)) for p in (installed / "gconv_jax").rglob("*")}
    tracked = subprocess.run(
        ["git", "ls-files", "gconv_jax"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "gconv_jax/py.typed" in tracked
    assert set(tracked) <= inside


def test_wheel_works_on_its_own(installed, run_python):
    out = run_python(
        """
        import sys
        for extra in ("tyro", "tqdm", "matplotlib", "tensorboardX", "pytest", "experiments"):
            sys.modules[extra] = None  # importing it raises
        import gconv_jax as gj, jax.numpy as jnp
        print(gj.__file__)
        x, coeffs, basis = jnp.ones((1, 4, 4, 1)), jnp.ones((9, 1, 2)), gj.make_basis("weiler")
        print(gj.lift_conv(x, coeffs, basis).shape)
        """,
        PYTHONPATH=str(installed),
        cwd=installed,
    )
    where, shape = out.splitlines()
    assert Path(where).is_relative_to(installed)
    assert shape == "(1, 4, 4, 8, 2)"


def test_sdist_can_be_tested_by_whoever_gets_it(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {Path(*Path(name).parts[1:]).as_posix() for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "Makefile",
        "requirements.lock",
        "gconv_jax/__init__.py",
        "tests/reference.py",
        "experiments/__init__.py",
    } <= names


def test_import_is_quick_and_wakes_no_device(run_python):
    script = """
        import sys, time
        start = time.process_time()  # importing is all work and no waiting
        import gconv_jax
        print(time.process_time() - start)
        from jax._src import xla_bridge
        assert not xla_bridge.backends_are_initialized()
        heavy = {"tensorflow_datasets", "tensorflow", "orbax", "matplotlib", "array_record"}
        assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
        """
    assert min(float(run_python(script)) for _ in range(3)) < 2


def test_version_is_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == gj.__version__


def test_lock_is_plain_pins_that_satisfy_the_project():
    pins = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().split())
    locked = {canonicalize_name(name): version for name, version in pins.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = map(Requirement, [*project["dependencies"], *extras["experiments"], *extras["dev"]])
    for requirement in wanted:
        if requirement.name != "gconv_jax":
            assert locked[canonicalize_name(requirement.name)] in requirement.specifier


def test_top_level_is_tidy():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    top = {name.split("/")[0] for name in tracked}
    assert {name for name in top if not name.startswith(".")} == {
        "LICENSE",
        "Makefile",
        "README.md",
        "experiments",
        "gconv_jax",
        "pyproject.toml",
        "requirements.lock",
        "tests",
    }
