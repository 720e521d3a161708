hwgen generate --spec vta --workload gemm --set M=2*8
