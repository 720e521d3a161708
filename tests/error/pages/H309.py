import hwgen

hwgen.compile_kernel(hwgen.load_workload("gemm"), hwgen.load_hardware("cpu_generic"))
