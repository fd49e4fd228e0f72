.PHONY: install demo test soak lint format docs audit clean
PYTHON ?= python3
BIN := .venv/bin

install: .venv/.installed

.venv/.installed: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	# builds of torch differ by platform and source; pip keeps an installed one, and checks the hashes of all others
	$(BIN)/pip install --quiet --no-deps $$(grep -o '^torch==[0-9.]*' requirements.lock)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@

demo: install
	$(BIN)/python -m experiments demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	# more threads than cores wait for each other
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not soak"

soak: install
	$(BIN)/pytest -m "soak"

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html through a server: $(BIN)/python -m http.server --directory site"

.venv/.docs: .venv/.installed
	# the lock has hashes, which pip would then require of the packages of the extra, too
	$(BIN)/pip freeze --exclude-editable > .venv/installed.txt
	$(BIN)/pip install --quiet --constraint .venv/installed.txt --no-build-isolation --editable '.[docs]'
	touch $@

audit: install
	test -x .venv/audit/bin/pip-audit || { $(PYTHON) -m venv .venv/audit && .venv/audit/bin/pip install --quiet pip-audit; }
	$(BIN)/python scripts/audit.py .venv/audit/bin/pip-audit

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist site
