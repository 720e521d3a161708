import hwgen

s = hwgen.Schedule(hwgen.load_workload("matmul"), hwgen.load_hardware("cpu_generic"))
s.replay("for i in range(4): s.unroll('k')", "mine.py")
