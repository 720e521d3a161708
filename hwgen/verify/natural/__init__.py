"""Random workloads of the kind that people write, and what becomes of them on a chip."""
