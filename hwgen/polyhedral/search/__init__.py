"""Which tiles, orders, places and slots, by cost."""
