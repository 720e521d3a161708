CFLAGS="'-O2" hwgen simulate --spec vta --workload gemm --set N=32 --set K=32
