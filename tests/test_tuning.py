"""What the experiments set for their process: taken by XLA, and after what the user says."""

from experiments import tuning

SCRIPT = """
    import os, sys
    os.environ["XLA_FLAGS"] = sys.argv[1]
    from experiments.tuning import tune
    tune(threads=1)
    import jax
    x = jax.numpy.arange(4.0)
    print(os.environ["XLA_FLAGS"], os.environ["NPROC"], float((x * x).sum()))
"""


def test_xla_takes_what_is_set(run_python):
    said = run_python(SCRIPT, "").split()
    ours = [f"--{name}={value}" for name, value in tuning._FLAGS.items()]
    assert len(ours) == 3
    assert said == [*ours, "1", "14.0"]


def test_the_user_goes_first(run_python):
    theirs = "--xla_cpu_prefer_vector_width=128 --xla_backend_optimization_level=0"
    *flags, _, answer = run_python(SCRIPT, theirs).split()
    assert flags[-2:] == theirs.split()
    assert len(flags) == 3  # what they do not speak of is set, and nothing is set twice
    assert answer == "14.0"
