"""What tests share. A test that cannot run here says so, and fails where nothing may be skipped."""

import importlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def skip(reason):
    """Skips the calling test, unless INBLOOM_NO_SKIP=1 forbids it."""
    assert os.environ.get("INBLOOM_NO_SKIP") != "1", (
        f"{reason}, and INBLOOM_NO_SKIP=1 forbids to skip tests"
    )
    print(f"\nSKIPPED {reason}", file=sys.__stderr__)
    pytest.skip(reason)


def module(name):
    """Imports a module that a test needs, or skips the test."""
    try:
        return importlib.import_module(name)
    except ImportError:
        skip(f"the Python package {name} is not installed")


@pytest.fixture(scope="session")
def command():
    """The inbloom command: of INBLOOM_BIN, or the one that was built last."""
    named = os.environ.get("INBLOOM_BIN")
    built = [ROOT / "target" / profile / "inbloom" for profile in ("debug", "release", "dist")]
    found = (
        [Path(named)]
        if named
        else sorted(filter(Path.exists, built), key=lambda path: path.stat().st_mtime)
    )
    if not found or not found[-1].exists():
        skip("the command inbloom is not built (cargo build -p inbloom-cli)")
    return str(found[-1])


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for_port(port, process):
    """Waits until a server that was started answers."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None, "the server ended"
            time.sleep(0.05)
    raise AssertionError("the server did not start")


class Server:
    """An inbloom server on a free port."""

    def __init__(self, command, folder):
        self.port = free_port()
        self.files = folder / "files"
        self.files.mkdir()
        self.url = f"redis://127.0.0.1:{self.port}"
        listen = ["--listen", f"127.0.0.1:{self.port}"]
        folders = ["--dir", str(folder / "data"), "--import-dir", str(self.files)]
        self.arguments = [command, "serve", *listen, *folders]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.arguments, stderr=subprocess.DEVNULL)
        wait_for_port(self.port, self.process)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def server(command, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(command, folder)
    yield server
    server.stop()
