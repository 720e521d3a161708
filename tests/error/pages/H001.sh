hwgen init my_chip
hwgen generate --spec my_chip --workload .
