"""Steps and loops: pure optax train-state steps, data-parallel, with checkpoints that survive."""
