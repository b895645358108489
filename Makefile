# make run     set up what running needs, then qualify this machine
# make check   the loop while you work, about a minute: incremental build, format, types, the direction of imports, and
#              the unit tests of C++, Python and TypeScript. Tests with a marker (lab, guest, browser, programs, slow;
#              see pyproject.toml) are left to "make test"
# make test    the gate: set up what the tests need, then lint and every test whose outcome follows from the code alone;
#              ONLY="tests/python/lab -k loss" for some of the Python tests. In CI (CI=true) a skipped test fails.
# make acceptance  the rest: rates and proofs in labs, guests, chaos and kills, fuzzers, sanitizers, real programs, the
#              benchmarks with their bars; ONLY=storage for one area. Nothing else may run on the machine meanwhile.
#              ONLY=--continue goes on after the parts that ended on this commit before, for a run of several evenings.
# make test-programs  real programs of Debian with and without "assay heap", whose output and exit codes must be the same;
#              installs those that are missing
# make bench   every benchmark under bench/ (ONLY=net for one area): one JSON line a figure
# make fuzz    readers of foreign bytes under mutated input, for TIME=1h together (default: 10min)
# make lint    formatting, types, the direction of imports, clang-tidy on what has changed
# make setup   the set-up alone
# make format  formats all sources
.PHONY: run check test acceptance test-programs bench fuzz lint static static-formats static-types static-web static-layers format setup test-setup clean
.DEFAULT_GOAL := run

python := .venv/bin/python
export PYTHONPATH := python
# Tests start Assay thousands of times: Python keeps what it has compiled, also where the shell says otherwise.
export PYTHONDONTWRITEBYTECODE :=

run: setup
	@./assay check

setup:
	@packaging/setup.sh run

test-setup:
	@packaging/setup.sh test

# What "make check" leaves out: it takes long, or needs more than a compiler.
marked = lab or guest or browser or programs or slow or acceptance

check: test-setup static
	@$(ctest) --label-exclude 'slow|acceptance'
	@cd web && $(node) npm run --silent test
	@$(python) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "not ($(marked))"

test: test-setup static
	@$(python) packaging/suites.py gate $(ONLY)

acceptance: test-setup static
	@packaging/setup.sh acceptance
	@packaging/setup.sh programs
	@$(python) packaging/suites.py acceptance $(ONLY)

test-programs: test-setup
	@packaging/setup.sh programs
	@$(python) tests/fixtures/heap_programs.py

ctest = ctest --test-dir build --output-on-failure --timeout 300 -j4
node = PATH="$$(../packaging/setup.sh node):$$PATH"

# Sources of C and C++; fixtures of tests included.
cpp = $$(git ls-files '*.cpp' '*.hpp' '*.c' '*.h')

fuzz:
	@packaging/setup.sh acceptance
	@$(python) packaging/fuzz.py $(TIME)

lint: test-setup static
	@$(python) packaging/tidy.py

# The slowest, mypy, runs beside the others.
static: test-setup
	@$(MAKE) -j4 -Otarget --no-print-directory static-formats static-types static-web static-layers

static-formats:
	@$(python) -m ruff check python tests bench docs packaging
	@$(python) -m ruff format --check -q python tests bench docs packaging
	@.venv/bin/clang-format --dry-run -Werror $(cpp)

static-types:
	@$(python) -m mypy --no-error-summary

static-web:
	@cd web && $(node) npm run --silent check

static-layers:
	@PYTHONPATH=python .venv/bin/lint-imports --no-cache >build/lint-imports.log || { cat build/lint-imports.log; exit 1; }

# Writes what lint would ask for.
format: test-setup
	@$(python) -m ruff format -q python tests bench docs packaging
	@.venv/bin/clang-format -i $(cpp)
	@cd web && $(node) npm run --silent format

bench: test-setup
	@$(python) bench/run.py $(ONLY)

clean:
	@rm -rf build web/dist
