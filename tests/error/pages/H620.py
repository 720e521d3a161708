import hwgen

rows = hwgen.workload(
    "rows", tensors={"a": "float32[16, 8]", "b": "float32[16]"}, compute=["b[i] += a[i, k]"]
)
s = hwgen.Schedule(rows, hwgen.load_hardware("cuda_generic"))
both = s.fuse("i", "k")
s.bind(both, "threadIdx.x")
hwgen.build(rows, s.hardware, script=s, auto=False)
