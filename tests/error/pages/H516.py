import hwgen

kernel = hwgen.build("gemm", "vta")
narrow = f"{kernel.script}s.storage_align('b_wgt', 0, 24, 0)\n"
hwgen.build("gemm", "vta", script=narrow, auto=False)
