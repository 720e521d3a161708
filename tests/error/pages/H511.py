import hwgen

chain = hwgen.workload(
    "chain",
    tensors={"a": "float32[64, 48]", "b": "float32[64, 48]", "c": "float32[64, 48]"},
    compute=["b[i, j] = a[i, j] * 2", "c[i, j] = b[i, j] + 1"],
)
s = hwgen.Schedule(chain, hwgen.load_hardware("cpu_generic"))
s.compute_at("b", "c_i")
s.parallel("c_i")
s.double_buffer("b", 2)
hwgen.build(chain, s.hardware, script=s, auto=False)
