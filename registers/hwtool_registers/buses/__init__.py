"""The buses: one file a transport, each answering Confirmed, Rejected or Ambiguous."""
