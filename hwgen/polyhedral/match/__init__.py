"""Which intrinsics do which statements, with which lanes."""
