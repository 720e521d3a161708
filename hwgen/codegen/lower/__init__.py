"""From a schedule, a tree of loops and blocks, to the program of a chip with units."""
