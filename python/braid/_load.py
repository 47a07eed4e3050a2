"""Loads the extension module beside frameworks that bring other copies of the libraries it links.

A build of this tree links the system's protobuf and gRPC. TensorFlow puts symbols of its own protobuf into the
global scope, where they would take the place of ours: DEEPBIND lets the module's own libraries win. Under a preloaded
malloc that leads to two allocators, so there it is refused.
"""

from __future__ import annotations

import os
import sys


def _load() -> None:
    preloaded = os.environ.get("LD_PRELOAD", "")
    if any(word in preloaded for word in ("jemalloc", "tcmalloc", "mimalloc")):
        raise ImportError(f"braid cannot be imported under LD_PRELOAD={preloaded}: this build looks its own libraries' "
                          "symbols up first (RTLD_DEEPBIND), and would then have two allocators; start without it")
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
    try:
        from braid import _braid  # noqa: F401: loaded now
    finally:
        sys.setdlopenflags(flags)


_load()
