hwgen schema > chip.txt
hwgen check chip.txt
