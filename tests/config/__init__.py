"""Settings files: what they may say, and what is said of a mistake."""
