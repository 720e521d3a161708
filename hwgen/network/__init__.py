"""Whole models: from a file to one folder of C, layer by layer."""
