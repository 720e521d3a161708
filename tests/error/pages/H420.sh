hwgen generate --spec vta --workload gemm --no-auto
