"""What makes a program of a workload: phases, networks, scripts, one pass a file."""
