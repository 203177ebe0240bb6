"""`python -m tests.cases [WORD …]`: take the guard of each case away, and see its scenario or test turn red."""

from __future__ import annotations

import importlib
import sys

from tests.cases.table import mutants
from tests.mutants import SHARED, share

if __name__ == "__main__":
    for name in SHARED:
        importlib.import_module(name)
    tried = [m for m in mutants() if not sys.argv[1:] or any(word in m.guard for word in sys.argv[1:])]
    escaped = share(tried)
    print(f"{len(tried) - escaped} of {len(tried)} cases turn red without their guard")
    sys.exit(1 if escaped else 0)
