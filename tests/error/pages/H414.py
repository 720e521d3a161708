import hwgen

s = hwgen.Schedule(hwgen.load_workload("matmul"), hwgen.load_hardware("cpu_generic"))
s.split("m", factor=8)
s.unroll("m")
