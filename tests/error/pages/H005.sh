hwgen generate --spec vta --workload gemm --set ROWS=16
