import numpy as np

import hwgen

shift = hwgen.workload(
    "shift",
    tensors={"x": "int32[8]", "n": "int32[8]", "y": "int32[8]"},
    compute=["y[i] = x[i] >> n[i]"],
)
kernel = hwgen.build(shift, "cpu_generic", engine="python")
kernel(np.ones(8, np.int32), np.full(8, 40, np.int32))
