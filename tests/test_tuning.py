"""What the experiments set for their process: taken by XLA, and after what the user says."""

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
    ours = ["--xla_backend_optimization_level=1", "--xla_cpu_prefer_vector_width=512"]
    assert said == [*ours, "1", "14.0"]


def test_the_user_goes_first(run_python):
    theirs = "--xla_cpu_prefer_vector_width=128 --xla_backend_optimization_level=0"
    assert run_python(SCRIPT, theirs).split() == [*theirs.split(), "1", "14.0"]
