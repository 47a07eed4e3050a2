"""Exit codes of a program that ends with an error of Braid: those of the `braid` binary, by which launchers and
Kubernetes decide whether to start it again."""

from __future__ import annotations

import atexit
import sys
from types import TracebackType

from braid import _braid

_CODES = {_braid.InvalidArgument: 2, _braid.DataLoss: 2, _braid.Unavailable: 138, _braid.DeadlineExceeded: 138,
          _braid.DeviceError: 138}


def install() -> None:
    """Behind the hook that is there, which prints the error."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if kind in _CODES:
            raise SystemExit(_CODES[kind])

    sys.excepthook = hook
    atexit.register(_braid.close_stores)
