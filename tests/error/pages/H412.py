import hwgen

s = hwgen.Schedule(hwgen.load_workload("matmul"), hwgen.load_hardware("cpu_generic"))
s.parallel("k")
