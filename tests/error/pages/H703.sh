PATH= CC= hwgen simulate --spec vta --workload gemm --set N=32 --set K=32 --engine c
