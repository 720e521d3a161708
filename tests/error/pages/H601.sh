hwgen init my_chip
sed -i 's|_zero({{ dst.address }}|_zero({{ T // (T - 16) }}|' my_chip.yaml
hwgen generate --spec my_chip --workload gemm --set M=1 --set N=16 --set K=16
