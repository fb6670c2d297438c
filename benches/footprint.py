"""What the program costs before it does anything: size, time until ready, help, memory and CPU while idle.

usage: python3 benches/footprint.py [BINARY]        (default: target/packages/politely, of scripts/package)

Times are the best of 20 starts: the machine's other work makes a start longer, never shorter.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BINARY = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "target/packages/politely")
STARTS = 20
IDLE_S = 30


def help_ms():
    began = time.monotonic()
    subprocess.run([BINARY, "--help"], stdout=subprocess.DEVNULL, check=True)
    return (time.monotonic() - began) * 1e3


def serve():
    """Returns a coordinator with an empty state, and the milliseconds until it listened."""
    folder = tempfile.TemporaryDirectory()
    began = time.monotonic()
    process = subprocess.Popen(
        [BINARY, "serve", "--bind", "127.0.0.1:0", "--state", folder.name + "/state"],
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stderr.readline()
    took = (time.monotonic() - began) * 1e3
    assert line.startswith("politely: http"), line
    return process, took, folder


def ready_ms():
    process, took, folder = serve()
    process.terminate()
    process.wait()
    folder.cleanup()
    return took


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle():
    """Returns the resident MiB of a coordinator without callers, its own MiB of them, and its CPU percentage.

    The rest of the resident memory are pages of the program's file, which the kernel can drop.
    """
    process, _, folder = serve()
    time.sleep(2)
    before = cpu_s(process.pid)
    time.sleep(IDLE_S)
    cpu = 100 * (cpu_s(process.pid) - before) / IDLE_S
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident, own = (int(status.split(field)[1].split()[0]) / 1024 for field in ("VmRSS:", "RssAnon:"))
    process.terminate()
    process.wait()
    folder.cleanup()
    return resident, own, cpu


print(f"size: {BINARY.stat().st_size / 2**20:.1f} MiB")
print(f"serve until it listens, with an empty state: {min(ready_ms() for _ in range(STARTS)):.0f} ms")
print(f"--help: {min(help_ms() for _ in range(STARTS)):.1f} ms")
resident, own, cpu = idle()
print(f"idle: {resident:.1f} MiB resident, {own:.1f} MiB of them its own, {cpu:.2f} % of a core over {IDLE_S} s")
