import hwgen

workload = hwgen.Workload(
    "first_half",
    tensors={"a": "float32[8]", "c": "float32[8]"},
    compute=["c[i] = a[i] * 2", {"do": "c[i] = a[i]", "loops": {"i": 4}}],
)
hwgen.Schedule(workload, hwgen.load_hardware("cpu_generic"))
