"""The user's own coordinator on this machine, for clients without the URL of one.

The program ``politely local`` starts it if it does not run, and prints its address. All processes
of the user share it, and it ends some minutes after the last call. A client that gets no answer
from it runs the program again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from dataclasses import dataclass

from politely_client.errors import BadCall

RUN_EVERY = 1.0
"""Minimum seconds between two runs of the program."""
RUN_TAKES_MAX = 30.0
"""Maximum seconds of a run. The program itself gives up earlier."""
OTHERWISE = "or name a coordinator with Client(url) or POLITELY_COORDINATOR"


@dataclass(frozen=True)
class Place:
    """The URL of the API of a coordinator, and its token if the client does not have it."""

    base: str
    token: str | None = None


class Local:
    """The place of the local coordinator. Threads and forked processes may share it."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._is_lost = False
        """Whether the coordinator did not answer since the program ran."""
        self._ran = 0.0
        self.trouble = ""
        """Why the program failed to start the coordinator again."""
        self._own()

    def _own(self) -> None:
        # A thread of the parent may have held the lock during the fork.
        self._process, self._lock = os.getpid(), threading.Lock()

    def known(self) -> Place | None:
        """Returns the place, or `None` if the program must run."""
        is_due = self._is_lost and time.monotonic() >= self._ran + RUN_EVERY
        return None if is_due else self._place

    def find(self) -> Place:
        """Runs the program if it must run. Raises `BadCall` if it fails and no place is known."""
        if self._process != os.getpid():
            self._own()
        with self._lock:
            place = self.known()
            if place is None:
                self._ran = time.monotonic()
                try:
                    place = self._place = started()
                    self._is_lost, self.trouble = False, ""
                except BadCall as why:
                    if self._place is None:
                        raise
                    place, self.trouble = self._place, str(why)  # it may be a passing failure
            return place

    def lost(self, place: Place) -> None:
        """Notes that the coordinator at ``place`` did not answer."""
        if place == self._place:
            self._is_lost = True


def started() -> Place:
    """Runs the program and returns the coordinator that it names."""
    command = [program(), "local"]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_TAKES_MAX
        )
        said = ran.stderr.strip().removeprefix("error: ")
        if not ran.returncode:
            about = json.loads(ran.stdout)
            return Place(f"{about['address']}/api/v1", about["token"])
    except (OSError, ValueError, LookupError, TypeError, subprocess.TimeoutExpired) as error:
        said = f"{type(error).__name__}: {error}"
    raise BadCall(f"{' '.join(command)}: {said}; correct this, {OTHERWISE}", status=0)


def program() -> str:
    """Returns the path of the program that the package carries, or of one on ``PATH``."""
    if named := os.environ.get("POLITELY_PROGRAM"):
        return named
    user = sysconfig.get_preferred_scheme("user")
    folders = [
        os.path.dirname(sys.executable or ""),
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", user),
    ]
    found = shutil.which("politely", path=os.pathsep.join(folders)) or shutil.which("politely")
    if found is None:
        why = "no coordinator is named, and the program politely is not installed: install it, set"
        raise BadCall(f"{why} POLITELY_PROGRAM, {OTHERWISE}", status=0)
    return found
