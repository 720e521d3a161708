import hwgen

# No call has rows and columns in one loop.
hwgen.build("gemm", "vta", script="s.fuse('m', 'n')\n", sizes={"M": 16, "N": 16, "K": 16})
