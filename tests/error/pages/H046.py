import sys
from unittest.mock import patch

from hwgen.explore.guided import sampler_package

with patch.dict(sys.modules, {"optuna": None}):
    sampler_package()
