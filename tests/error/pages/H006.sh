hwgen generate --spec vta --workload gemm_n.yaml --set BATCH=2
