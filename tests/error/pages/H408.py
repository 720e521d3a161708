import hwgen

workload = hwgen.Workload(
    "padded_between",
    tensors={"x": "float32[8, 8]", "h": "float32[8]", "p": "float32[10]", "y": "float32[10]"},
    compute=[
        "h[m] += x[m, k]",
        "p[i] = select(i >= 1 and i < 9, h[i - 1], 0.0)",
        "y[i] = p[i] + 1.0",
    ],
)
hwgen.build(workload, "npu_shared_buffer")
