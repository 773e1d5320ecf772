"""The experiments of the paper, as command lines on top of the library."""
