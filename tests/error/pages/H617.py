import hwgen

s = hwgen.Schedule(hwgen.load_workload("matmul"), hwgen.load_hardware("cpu_generic"))
s.split("m", factor=1_000_000_000_000)
