"""The budget of one run: who may draw on it, how much each call holds, when a person is asked."""
