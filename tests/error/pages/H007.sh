hwgen generate --spec cpu_generic --workload gemm --stage match
