"""Speed, memory and growth of gconv_jax, beside escnn in the same run: `make bench`."""
