import hwgen
from hwgen.model.reference import run_reference

run_reference(hwgen.load_workload("gemm"), {})
