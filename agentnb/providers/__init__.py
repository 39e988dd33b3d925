"""Providers, which answer conversations: real APIs, a script, a demo."""
