"""gconv_jax beside escnn and beside XLA's own convolutions, timed in turns: `make bench`."""
