"""The command line: one verb a function, data on stdout, messages on stderr, one exit code per outcome."""
