import hwgen
from hwgen.model.compiled import compile_model

kernel = hwgen.build("gemm", "vta", sizes={"N": 32, "K": 32})
compile_model(kernel.compilation.source).run({})
