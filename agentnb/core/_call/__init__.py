"""One call, to a model or a tool: retries, leases, deadlines. For the core alone."""
