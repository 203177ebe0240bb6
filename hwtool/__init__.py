"""hwtool: the daemon between callers and hardware registers, its client and its command line."""
