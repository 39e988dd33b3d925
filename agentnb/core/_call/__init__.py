"""One call, to a model or a tool: retries, leases, deadlines. Private to the core."""
