hwgen calibrate --spec gemmini --run qemu-of-my-core
