"""Processes that end with the one that started them, even when it is killed: no engine or trainer outlives its run."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process

ORPHANED = 1
"""Exit code of a process whose parent is gone."""


def end_with_parent() -> None:
    """Watch the process that started this one through ``multiprocessing``; nothing in a process that nobody did."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(ORPHANED)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()
