# Every target makes its own environment in .venv; nothing else has to be set up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/*)

.PHONY: demo test bench lint format docs wheel clean

demo: $(VENV)/.installed
	$(BIN)/steepest demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadgroup

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.linear

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(wildcard native/*.h native/*.cpp native/fuzz/*.cpp)

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(wildcard native/*.h native/*.cpp native/fuzz/*.cpp)

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

wheel: $(BIN)/python
	$(BIN)/python -m pip wheel --no-deps -w dist .

clean:
	rm -rf $(VENV) build dist site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The package itself is built anew when a native file or the build changes.
$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.%: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e '.[$*]'
	touch $@
