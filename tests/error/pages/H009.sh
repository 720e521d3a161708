hwgen generate --spec vta --workload gemm --workload relu --report both.html
