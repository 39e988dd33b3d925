"""Settings files: their content, and the messages for mistakes."""
