"""hwtool: the daemon between callers and hardware registers, its client and its command line.

The public names are those of the synchronous client; `import hwtool` is light.
"""

from hwtool.client import CallFailed, Client, ConnectionLost, NoDaemon

__all__ = ["CallFailed", "Client", "ConnectionLost", "NoDaemon"]
