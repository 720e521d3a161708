"""Exploration of chips: kernels for many values of a chip's parameters, and which are the best."""
