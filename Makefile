.PHONY: install demo test soak lint format docs clean
PYTHON ?= python3
BIN := .venv/bin

install: .venv/.installed

.venv/.installed: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --requirement requirements.lock
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
	$(BIN)/pip install --quiet --constraint requirements.lock --no-build-isolation --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist site
