"""What a host needs to run the daemon: rules for its device nodes, units of its service manager. Text alone."""
