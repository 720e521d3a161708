import hwgen

chain = hwgen.workload(
    "chain",
    tensors={"a": "float32[64, 48]", "b": "float32[64, 48]", "c": "float32[64, 48]"},
    compute=["b[i, j] = a[i, j] * 2", "c[i, j] = b[i, j] + 1"],
)
s = hwgen.Schedule(chain, hwgen.load_hardware("cpu_generic"))
s.transform_layout("b", "[i, j] -> [i]")
