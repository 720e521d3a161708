import sys
from unittest.mock import patch

from hwgen.exploration.guided import sampler_package

with patch.dict(sys.modules, {"optuna": None}):
    sampler_package()
