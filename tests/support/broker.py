"""A real broker on a simulated device of its own, for tests in Python. Everything it makes is gone afterwards."""
import contextlib
import fcntl
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

BUILD = pathlib.Path(os.environ.get("APPORTION_BUILD_DIR",
                                    pathlib.Path(__file__).resolve().parents[2] / "build/dev"))
PATIENCE_S = 60

CONFIG = """\
[broker]
device = "sim:8GiB"
pool   = "5GiB"

[jobs.trainer]
share = "0.5"

[jobs.notebook]
guarantee = "1GiB"
limit     = "4GiB"
"""


def program(name):
    return str(BUILD / name)


def scratch_folder():
    """(path, lock to keep): as cudasim's ScratchFolder makes one; where this process is killed, the next of those removes it."""
    making = tempfile.mkdtemp(prefix="cudasim-making-", dir="/dev/shm")
    owner = open(making + "/owner", "w")
    fcntl.flock(owner, fcntl.LOCK_SH)
    made = making.replace("cudasim-making-", "cudasim-scratch-")
    os.rename(making, made)
    return made, owner


class Broker:
    def __init__(self, folder, config=CONFIG, daemon=None):
        self.folder, self.daemon = folder, daemon or program("broker/apportiond")
        self.config = folder / "apportion.toml"
        self.config.write_text(config)
        self.device, self.owner = scratch_folder()
        self.environment = dict(os.environ, APPORTION_SOCKET=str(folder / "broker.sock"), XDG_RUNTIME_DIR=str(folder))
        for variable in ("APPORTION_JOB", "APPORTION_CONFIG", "APPORTION_DRIVER", "APPORTION_LOG", "CUDASIM_DIR"):
            self.environment.pop(variable, None)
        self.process = None

    def start(self):
        """Its words, once the broker has said that it is ready; raises with them when it ends instead."""
        own = dict(self.environment, CUDASIM_DIR=self.device + "/device")
        self.process = subprocess.Popen([self.daemon, "--config", str(self.config)], env=own,
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline, said = time.monotonic() + PATIENCE_S, b""
        while b"event=ready" not in said:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self.process.stderr], [], [], max(left, 0))
            part = os.read(self.process.stderr.fileno(), 4096) if readable else b""
            if not part:
                raise RuntimeError(f"the broker is not ready: {said.decode()}")
            said += part
        return said.decode()

    def stop(self):
        """Its exit status."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self.process.stderr.close()
        self.process = None
        return code

    def close(self):
        if self.process is not None:
            self.stop()
        shutil.rmtree(self.device, ignore_errors=True)
        self.owner.close()

    def run(self, *command, **variables):
        """A program beside the broker; a variable of None is removed."""
        environment = dict(self.environment, **{k: v for k, v in variables.items() if v is not None})
        for name in (name for name, value in variables.items() if value is None):
            environment.pop(name, None)
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)


@contextlib.contextmanager
def running_broker(config=CONFIG, daemon=None):
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        broker = Broker(pathlib.Path(folder), config, daemon)
        try:
            broker.start()
            yield broker
        finally:
            broker.close()


class Tap:
    """Prints TAP: one line a check, the plan at the end."""

    def __init__(self):
        self.count = self.failed = 0

    def check(self, name, good, why=""):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}", flush=True)
        if not good:
            print("\n".join(f"# {line}" for line in str(why).splitlines()), flush=True)

    def skip(self, name, reason):
        self.count += 1
        print(f"ok {self.count} - {name} # SKIP {reason}", flush=True)

    def end(self):
        print(f"1..{self.count}")
        return 1 if self.failed else 0
