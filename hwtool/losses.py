"""What is raised where a call got no answer: nothing was sent, or it is not known. The command line reads it too.

NoDaemon         nobody listens; nothing was sent
Closed           the client was closed by its own program; nothing was sent
ConnectionLost   the request was sent and no answer came: ask op_get with the key before anything else
  NeverSent      ... and the daemon, asked afterwards, has never recorded it: the same call may be made again
  NoReply        ... within the time that the caller was willing to wait; nothing is cancelled
"""

from __future__ import annotations

import errno


class NoDaemon(Exception):
    """Nobody listens on the socket, or this user may not connect to it; the request was not sent."""


def unreached(path: object, error: OSError) -> NoDaemon:
    """What a connection that could not be made comes to, with what to do about it."""
    told = error.strerror or str(error)
    if error.errno == errno.EACCES:
        groups = "in the system install agents are in the group hwtool, operators in hwtool-operator"
        return NoDaemon(f"this user may not connect to {path}: {told}; {groups}")
    return NoDaemon(f"no daemon on {path}: {told}; start one with hwtool serve")


class ConnectionLost(Exception):
    """The connection broke after the request was sent: ask op_get with the key before anything else."""


class Closed(ValueError):
    """The client was closed by its own program; nothing was sent."""


class NeverSent(ConnectionLost):
    """The connection broke, and the daemon has no record of the key: nothing was sent to the device under it.

    The same call with the same key may be made again; the client does not do so by itself.
    """


class NoReply(ConnectionLost):
    """No answer came within the client's `timeout_s`. Nothing is cancelled: the operation goes on under its key."""
