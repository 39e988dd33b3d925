# Short names for what a change has to pass. Uses the environment that is active, or
# `make PYTHON=.venv/bin/python check`. What is run is configured in pyproject.toml.

PYTHON ?= python

.PHONY: check format format-check lint types imports test notebooks

check: format-check lint types imports test

format:
	$(PYTHON) -m ruff check --select I --fix .
	$(PYTHON) -m ruff format .

format-check:
	$(PYTHON) -m ruff format --check .

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

imports:
	$(PYTHON) -c "from importlinter.cli import lint_imports_command as main; main()"

test:
	$(PYTHON) -m pytest

notebooks:
	$(PYTHON) -m pytest notebooks
