import hwgen

# Beginning with a number, or an input's elements, would be right.
workload = hwgen.Workload(
    "saturating",
    tensors={"x": "int8[3, 8]", "w": "int8[10, 8]", "y": "int16[3, 10]"},
    compute=[
        "y[m, n] = int16(x[m, 0] * w[n, 0])",
        "y[m, n] = int16(clip(y[m, n] + (x[m, k] * w[n, k] >> 4), -2047, 2047))",
    ],
)
hwgen.compile_kernel(workload, hwgen.load_hardware("vta"))
