"""A Dask cluster on this machine: a scheduler in this process, workers in processes of their own."""

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from distributed import Client, LocalCluster

PATHS = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))


class Cluster:
    def __init__(self, scheduler):
        self.scheduler, self.on, self.processes = scheduler, f"dask:{scheduler}", []

    def start(self):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.scheduler]
        alone = ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([*command, *alone], env=os.environ | {"PYTHONPATH": PATHS}, **quiet)

    def stop(self, k):
        """The worker keeps what it was given, and does none of it."""
        self.processes[k].send_signal(signal.SIGSTOP)

    def kill(self, k):
        self.processes[k].kill()
        self.processes[k].wait()

    def kill_all(self):
        """Returns once the scheduler has noticed."""
        for k in range(len(self.processes)):
            self.kill(k)
        with Client(self.scheduler, set_as_default=False) as client:
            while client.nthreads():
                time.sleep(0.05)

    def replace(self, k):
        self.kill(k)
        self.processes[k] = self.start()

    def wait(self):
        with Client(self.scheduler, set_as_default=False) as client:
            client.wait_for_workers(len(self.processes), timeout=60)


@contextmanager
def cluster(workers):
    with LocalCluster(n_workers=0, dashboard_address=None, silence_logs=logging.CRITICAL) as local:
        made = Cluster(local.scheduler_address)
        try:
            made.processes += [made.start() for _ in range(workers)]
            made.wait()
            yield made
        finally:
            for k in range(len(made.processes)):
                made.kill(k)


def noted(unit):
    """Work of a moment: adds its name to a file, so that one sees how often it was done."""
    file, name = unit
    with open(file, "a") as log:
        log.write(f"{name}\n")
    time.sleep(0.02)
    return name
