hwgen explore --spec vta --workload gemm --db without_tag.yaml
