hwgen simulate --spec vta --workload gemm --set M=16384 --set N=16384 --set K=16384
