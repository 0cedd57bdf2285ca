# Every target makes its own environment in .venv; nothing else has to be set up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STUB := src/steepest/_native.pyi
NATIVE := $(shell find native -name "*.h" -o -name "*.cpp")
SOURCES := pyproject.toml CMakeLists.txt $(shell find native -type f)

.PHONY: demo test quick bench coverage sanitize sanitize-short tsan fuzz audit lint size format docs wheel notebooks clean

# One thread of BLAS per test process: as many processes as cores run, and threads that wait for busy cores cost more.
TESTED := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

demo: $(VENV)/.installed
	@$(BIN)/steepest demo

test: $(VENV)/.test
	$(TESTED) --dist loadgroup

quick: $(VENV)/.test
	$(TESTED) -m quick --ignore tests/spark

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

# With a native module that counts the lines that run; TESTS=tests/kernels measures a part. Tests of memory have data so
# large that counting takes minutes; on a full disk, in little memory, in a directory that has gone and in a process that
# is being stopped, counting fails in ways of its own. gcov takes counts of billions for faults.
TESTS ?= tests
UNCOUNTED := does_not_grow or take_no_mem or stays_bounded or full_disk or little_memory or has_gone or in_the_making
coverage: build/coverage/.installed | $(VENV)/.coverage
	find build/coverage/native -name '*.gcda' -delete
	echo "import coverage; coverage.process_startup()" > $$(find build/coverage/venv -name borrowed.pth -execdir pwd \;)/coverage.pth
	OPENBLAS_NUM_THREADS=1 COVERAGE_FILE=build/coverage/data build/coverage/venv/bin/python -m pytest -n auto --dist loadgroup \
	  -m 'not build' -k 'not ($(UNCOUNTED))' $(TESTS) \
	  --cov steepest --cov-report term:skip-covered --cov-report html:build/coverage/python
	$(BIN)/gcovr --root . --filter native/ build/coverage/native --merge-mode-functions separate --merge-lines \
	  --gcov-ignore-errors source_not_found --gcov-ignore-parse-errors all \
	  --html-nested build/coverage/native.html --print-summary

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

# The native module under a sanitizer (address also checks undefined behaviour), and the tests that reach native code,
# with both instruction sets. TESTS=tests/kernels runs a part.
SANITIZED ?= tests/kernels tests/data tests/features tests/learners tests/models tests/promises tests/test_model_file.py
# Threads of hogwild write to the same weights without locks, by definition; threads of processes that were
# forked, as those of killed runs are, cannot be followed.
THREADED := (threads or jobs or parallel or replicas or mixing or blocks or seed or threaded) and not hogwild and not was_killed
SANITIZER = -fsanitize=$(1) -fno-sanitize-recover=all -fno-omit-frame-pointer -g1
RUNTIME = $(shell $(CXX) -print-file-name=lib$(1).so) $(shell $(CXX) -print-file-name=libstdc++.so)
# A sanitizer keeps freed memory for a while, so that the tests of memory say nothing under it.
# Python keeps memory for its own lifetime, which is not a leak of ours; leaks are searched for by the fuzz targets.
FOR_ADDRESS := ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=6000 UBSAN_OPTIONS=print_stacktrace=1 LD_PRELOAD="$(call RUNTIME,asan)"
# Misuse of locks is not looked for, only races: Arrow, compiled without the sanitizer, locks unseen and is seen to unlock.
FOR_THREADS := TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.txt:halt_on_error=1:report_signal_unsafe=0:die_after_fork=0:detect_deadlocks=0:report_mutex_bugs=0 LD_PRELOAD="$(call RUNTIME,tsan)"

sanitize: build/address/.installed
	for isa in baseline v3; do $(FOR_ADDRESS) STEEPEST_ISA=$$isa build/address/venv/bin/python -m pytest -n auto \
	  --dist loadgroup -m 'not build' -k 'not memory and not stay_within' $(or $(filter-out tests,$(TESTS)),$(SANITIZED)) || exit 1; done

# What every change must pass of it, in two minutes: one instruction set, compiled without optimisation and without the
# checks of every pointer that take longest to compile; kernels against their references, mutated files into every
# reader, and random arguments into every binding. The tests of the linear kernels take too long for it, and
# in tables, which pyarrow reads, the sanitizer reports code of Python itself.
SHORT := $(filter-out %/test_kernels.py,$(wildcard tests/kernels/test_*.py)) tests/fuzz
sanitize-short: build/short/.installed
	$(FOR_ADDRESS) build/short/venv/bin/python -m pytest -n auto -m 'not build' -k 'not csv and not tsv and not jsonl' $(SHORT)
	cd tests && $(FOR_ADDRESS) ../build/short/venv/bin/python -m fuzz 10 bindings

tsan: build/thread/.installed
	$(FOR_THREADS) build/thread/venv/bin/python -m pytest -n auto --dist loadgroup -m 'not build' -k '$(THREADED)' \
	  $(or $(filter-out tests,$(TESTS)),$(SANITIZED))

# Mutated files into every reader and loader, and random arguments into every native function, SECONDS each.
SECONDS ?= 60
fuzz: $(VENV)/.test
	cd tests && ../$(BIN)/python -m fuzz $(SECONDS)

# Known faults of the packages that are installed, from a public database; a package that it cannot look up is an error.
audit: $(BIN)/python
	$(BIN)/python -m pip install --quiet pip-audit
	@mkdir -p build
	$(BIN)/python -m pip list --exclude-editable --format freeze > build/installed.txt
	$(BIN)/python -m pip_audit --strict --no-deps --disable-pip -r build/installed.txt

build/address/.installed: FLAGS = $(call SANITIZER,address$(COMMA)undefined)
build/short/.installed: FLAGS = -fsanitize=address,undefined -fno-sanitize=null,alignment,vptr,object-size -fno-sanitize-recover=all
build/short/.installed: OPTIMISE = -O0
build/short/.installed: MORE = -C cmake.define.STEEPEST_BASELINE=ON
build/thread/.installed: FLAGS = $(call SANITIZER,thread)
build/coverage/.installed: FLAGS = --coverage -fprofile-update=atomic
build/coverage/.installed: MORE = -C cmake.define.STEEPEST_BASELINE=ON
COMMA := ,
OPTIMISE := -O1
# The module compiled in another way, in an environment that borrows all other packages from .venv.
build/%/.installed: $(SOURCES) | $(VENV)/.test
	$(BIN)/python -m venv --without-pip build/$*/venv
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
	  $$(build/$*/venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/borrowed.pth
	$(BIN)/python -m pip --python build/$*/venv/bin/python install --quiet --no-deps --no-build-isolation -e . \
	  -C build-dir=build/$*/native -C 'cmake.define.CMAKE_CXX_FLAGS=$(FLAGS)' -C cmake.define.STEEPEST_OPTIMISE=$(OPTIMISE) $(MORE)
	touch $@
