import numpy as np

from hwgen.calibrate.fit import fitted

instructions = np.array([[20.0, 10.0, 5.0], [40.0, 10.0, 30.0]])  # of two kernels, by three costs
fitted(instructions, start=np.ones(3), measured=np.array([40.0, 90.0]))
