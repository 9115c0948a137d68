"""Run a command, and say in a file what it and its children cost: CPU and wall seconds, the largest of them in KiB.

A process of its own, and a small one: the most memory of a process counts that of whoever started it.

    python peers_launch.py FILE LIMIT_SECONDS COMMAND...

Exit code: that of the command; its session is killed when its time is over.
"""

import json
import os
import subprocess
import sys
import time


def main(file: str, limit_seconds: float, command: list[str]) -> int:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    while not ended:
        if time.perf_counter() - start > limit_seconds:
            os.killpg(process.pid, 9)
        time.sleep(0.01)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    wall, cpu = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    with open(file, "w", encoding="utf-8") as written:
        json.dump({"wall_seconds": wall, "cpu_seconds": cpu, "peak_mib": usage.ru_maxrss / 1024}, written)
    return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
