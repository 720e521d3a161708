import os

from hwgen.verify.executors import each

list(each(os._exit, [1, 1], 2))
