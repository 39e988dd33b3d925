"""Leases on the budget of one run, and the question when it runs low. Private to the core."""
