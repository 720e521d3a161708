import sys
from types import SimpleNamespace
from unittest.mock import patch

from hwgen.verify.cluster import Cluster


def silent(*_: object, **__: object) -> None:
    raise OSError("Timed out")


comm = SimpleNamespace(get_address_host_port=str)
with patch.dict(sys.modules, {"distributed": SimpleNamespace(Client=silent, comm=comm)}):
    Cluster("tcp://127.0.0.1:9")
