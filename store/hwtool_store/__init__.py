"""What is remembered: operations, keys, outcomes and the audit chain, in SQLite, behind one writer."""
