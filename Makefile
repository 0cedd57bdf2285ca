# Every target makes its own environment in .venv; nothing else has to be set up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STUB := src/steepest/_native.pyi
NATIVE := $(shell find native -name "*.h" -o -name "*.cpp")
SOURCES := pyproject.toml CMakeLists.txt $(shell find native -type f)

.PHONY: demo test quick bench coverage lint size format docs wheel notebooks clean

demo: $(VENV)/.installed
	@$(BIN)/steepest demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadgroup

quick: $(VENV)/.test
	$(BIN)/python -m pytest -n auto -m quick --ignore tests/spark

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.linear

lint: $(VENV)/.lint $(STUB)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/size.py
	$(BIN)/clang-format --dry-run --Werror $(NATIVE)

size: $(BIN)/python
	$(BIN)/python tools/size.py

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(NATIVE)

# In an environment of its own, whose native module counts the lines that run; TESTS=tests/kernels measures a part.
TESTS ?= tests
COUNTED := --coverage -fprofile-update=atomic
coverage:
	$(PYTHON) -m venv build/coverage/venv
	build/coverage/venv/bin/python -m pip install --quiet -e '.[coverage]' -C cmake.build-type=Debug \
	  -C build-dir=build/coverage/native -C 'cmake.define.CMAKE_CXX_FLAGS=$(COUNTED)'
	find build/coverage/native -name '*.gcda' -delete
	COVERAGE_FILE=build/coverage/data build/coverage/venv/bin/python -m pytest -n auto --dist loadgroup -m 'not build' $(TESTS) \
	  --cov steepest --cov-report term:skip-covered --cov-report html:build/coverage/python
	build/coverage/venv/bin/gcovr --root . --filter native/ build/coverage/native --merge-mode-functions separate \
	  --gcov-ignore-errors source_not_found --html-nested build/coverage/native.html --print-summary

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

wheel: $(BIN)/python
	$(BIN)/python -m pip wheel --no-deps -w dist .
	@echo "a wheel for this kind of machine is in dist/; pip install dist/steepest-*.whl needs no compiler"

notebooks: $(VENV)/.installed
	$(BIN)/python tools/notebooks.py build/notebooks

clean:
	rm -rf $(VENV) build dist site

$(BIN)/python:
	@echo "making the environment $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# The package itself is built anew when a native file or the build changes.
$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	@$(BIN)/python tools/install.py
	@touch $@

# The types of the native module as mypy sees them beside the sources; a wheel gets the same from CMake.
$(STUB): $(VENV)/.lint
	$(BIN)/python -m nanobind.stubgen -q -m steepest._native -o $@

$(VENV)/.%: $(VENV)/.installed
	@$(BIN)/python tools/install.py $*
	@touch $@
