import hwgen

blur = hwgen.workload(
    "blur",
    tensors={"a": "float32[66]", "b": "float32[66]", "c": "float32[64]"},
    compute=["b[i] = a[i] * 2", {"do": "c[i] = b[i] + b[i + 2]", "loops": {"i": 64}}],
)
s = hwgen.Schedule(blur, hwgen.load_hardware("cpu_generic"))
s.transform_layout("b", "[i] -> [i % 2]")
