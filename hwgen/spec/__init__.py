"""What users write: chips, workloads and the expression language, read and checked."""
