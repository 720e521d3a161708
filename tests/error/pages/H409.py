import hwgen

square = "float32[8, 8]"
workload = hwgen.Workload(
    "rewritten",
    tensors={"x": square, "w": square, "a": square, "b": square},
    compute=[
        "a[i, j] += x[i, k] * w[k, j]",
        "b[i, j] += a[i, k] * w[k, j]",
        "a[i, j] = a[i, j] + b[i, j]",
    ],
)
hwgen.build(workload, "npu_shared_buffer")
