import hwgen

s = hwgen.Schedule(hwgen.load_workload("gemm"), hwgen.load_hardware("vta"))
k_o, k_i = s.split("k", factor=8)
s.tensorize(k_i, "gemm")
