hwgen generate --spec vta --workload gemm --objective energy
