# fused.script holds one line: s.fuse('c_m', 'c_n')
hwgen generate --spec vta --workload gemm --script fused.script
