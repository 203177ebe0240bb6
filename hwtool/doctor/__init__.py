"""`hwtool doctor`: what keeps the daemon from working on a host, or lets others go past it. Looks, and no more."""
