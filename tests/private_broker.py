"""A broker of one's own: its socket and its audit log lie in a fresh directory under /tmp, and
neither outlives the test.

The broker is started on demand by the first program that is run with `environment`. It is found
through its socket (the kernel names the listener) and waited for through a pidfd, so nothing here
depends on time. Should the test itself be killed, its children die with it and the broker leaves
because it is idle.
"""

import ctypes
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

LIMIT_S = 60  # Only ever reached when something hangs.
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class PrivateBroker:
    def __init__(self, hufud):
        # A short path: a socket's may have 107 bytes.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hufu-", dir="/tmp"))
        self.socket = self.directory / "broker.sock"
        self.audit = self.directory / "audit"
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HUFU_")},
            "HUFU_BROKER": f"unix:{self.socket}",
            "HUFU_AUDIT_DIR": str(self.audit),
            "HUFU_HUFUD": str(hufud),
            "HUFU_IDLE_MS": "5000",
        }
        self._children = []

    def spawn(self, arguments, **options):
        """Starts a program that talks to this broker; close() ends it if it has not ended."""
        child = subprocess.Popen([str(a) for a in arguments], preexec_fn=_die_with_parent,
                                 env=self.environment, **options)
        self._children.append(child)
        return child

    def pid(self):
        """The broker's pid; None when none listens."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            try:
                client.connect(str(self.socket))
            except (FileNotFoundError, ConnectionRefusedError):
                return None
            size = struct.calcsize("3i")
            return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED,
                                                         size))[0]

    def end_broker(self, how=signal.SIGTERM):
        pid = self.pid()
        if pid is None:
            return
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return  # It was leaving already.
        try:
            signal.pidfd_send_signal(process, how)
            if not select.select([process], [], [], LIMIT_S)[0]:
                raise TimeoutError(f"broker {pid} did not end after {how}")
        finally:
            os.close(process)

    def close(self):
        for child in self._children:
            child.kill()
            child.wait(LIMIT_S)
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        try:
            self.end_broker()
        finally:
            shutil.rmtree(self.directory)
