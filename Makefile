# Short names for what a change has to pass. Uses the environment that is active, or
# `make PYTHON=.venv/bin/python check`. What is run is configured in pyproject.toml.

PYTHON ?= python

.PHONY: quick check format format-check lint types imports test browser javascript notebooks docs

# After each small change: the tests of what differs from the commit BASE.
BASE ?= HEAD
quick: format lint imports types
	$(PYTHON) -m tests.quick $(BASE)

# In a few minutes; what drives a real browser takes longer: `make browser`.
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
	$(PYTHON) -m pytest -m "not browser and not live"

browser:
	$(PYTHON) -m pytest -m "browser and not live" tests/browser

javascript: node_modules
	npm run lint
	npm test

node_modules: package.json
	npm install --ignore-scripts --no-package-lock --no-audit --no-fund
	npm run front-ends

notebooks:
	$(PYTHON) -m pytest notebooks

# The site, in build/site. A warning is an error; notebooks are shown as they were saved.
docs:
	$(PYTHON) -m sphinx -q -W --keep-going -c docs . build/site
