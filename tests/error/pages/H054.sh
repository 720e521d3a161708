hwgen calibrate --spec npu_shared_buffer
