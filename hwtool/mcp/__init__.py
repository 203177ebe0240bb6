"""The bridge for hosts that speak MCP: a stdio process without authority and without state (extra `hwtool[mcp]`)."""
