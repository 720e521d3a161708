import hwgen

chain = hwgen.workload(
    "chain",
    tensors={"a": "float32[64, 48]", "b": "float32[64, 48]", "c": "float32[64, 48]"},
    compute=["b[i, j] = a[i, j] * 2", "c[i, j] = b[i, j] + 1"],
)
s = hwgen.Schedule(chain, hwgen.load_hardware("cuda_generic"))
s.unroll("c_i")
s.bind("c_j", "blockIdx.x")
hwgen.build(chain, s.hardware, script=s, auto=False)
