"""Costs of a processor in a spec, fitted to small kernels that are compiled and run."""
