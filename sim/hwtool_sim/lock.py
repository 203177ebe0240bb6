"""Exclusive use of something by one program of this host, by a lock file beside it."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import BinaryIO


def exclusive(path: str, in_use: str) -> BinaryIO:
    """Lock a file until it is closed; it is made if need be, and never removed (whoever waits would hold another one).

    Raises:
        OSError: somebody has it (EBUSY, with `in_use` for words), or it cannot be opened.
    """
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise OSError(errno.EBUSY, in_use) from error
    return file
