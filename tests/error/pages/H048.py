import sys
from types import SimpleNamespace
from unittest.mock import patch

from hwgen.verify.cluster import Cluster


def silent(*_: object, **__: object) -> None:
    raise OSError("Timed out")


with patch.dict(sys.modules, {"distributed": SimpleNamespace(Client=silent)}):
    Cluster("tcp://127.0.0.1:9")
