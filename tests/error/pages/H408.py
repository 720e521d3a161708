import hwgen

workload = hwgen.workload(
    "slice_between",
    tensors={
        "x": "float32[8, 8]",
        "h": "float32[8]",
        "p": "float32[4]",
        "y": "float32[4]",
        "z": "float32[4]",
    },
    compute=[
        "h[m] += x[m, k]",
        "p[i] = h[i + 2]",
        "y[i] = p[i] + 1.0",
        "z[i] = p[i] * 2.0",
    ],
)
hwgen.build(workload, "npu_shared_buffer")
