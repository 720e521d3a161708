hwgen init my_chip
hwgen init my_chip
