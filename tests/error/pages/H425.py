import hwgen

twice = hwgen.workload(
    "twice",
    tensors={"x": "int32[64, 8]", "y": "int32[64, 8]"},
    compute=["y[i, j] = x[i, j] + x[i, j]"],
)
s = hwgen.Schedule(twice, hwgen.load_hardware("tests/error/pages/one_unit.yaml"))
made = s.cache_write("y", "regs")
given = s.cache_read("x", "regs")
s.compute_at(made, "y_0")
s.compute_at(given, "y_0")
s.tensorize("j", "double")
s.tensorize("x_regs_1", "load")
s.tensorize("y_1", "store")
s.parallel("y_0")
hwgen.build(twice, s.hardware, script=s, auto=False)
