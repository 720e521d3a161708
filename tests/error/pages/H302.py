import hwgen

workload = hwgen.workload(
    "gram",
    tensors={"a": "int8[1, 5]", "c": "int32[1, 1]"},
    compute=["c[m, n] += a[m, k] * a[n, k]"],
)
hwgen.compile_kernel(workload, hwgen.load_hardware("gemmini"))
