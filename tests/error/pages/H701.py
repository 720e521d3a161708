import hwgen
from hwgen.model.compiled import compile_model

workload = hwgen.load_workload("gemm", {"N": 32, "K": 32})
kernel = hwgen.compile_kernel(workload, hwgen.load_hardware("vta"))
compile_model(kernel.source).run({})
