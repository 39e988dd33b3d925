"""What can answer a conversation: the real API, a script, a demo. Each wraps one outside thing."""
