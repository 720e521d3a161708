from time import sleep

from hwgen.verify.executors import Lost, Processes

with Processes(1, seconds=0.2) as workers:
    for _, result in workers.run(sleep, [60]):
        if isinstance(result, Lost):
            raise result.error
