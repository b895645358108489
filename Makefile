# make run     set up what running needs, then qualify this machine
# make check   the loop while you work, about a minute: incremental build, format, types, the direction of imports, and
#              the unit tests of C++, Python and TypeScript. Tests with a marker (lab, guest, browser, programs, slow,
#              alone; see pyproject.toml) are left to "make test"
# make test    set up what the tests need, then lint and every test; ONLY="tests/python/lab -k loss" for some of them
# make test-programs  real programs of Debian with and without "assay heap", whose output and exit codes must be the same;
#              installs those that are missing
# make bench   every benchmark under bench/ (ONLY=net for one area): one JSON line a figure
# make fuzz    readers of foreign bytes under mutated input, for TIME=1h together (default: 10min)
# make lint    formatting, types, the direction of imports, clang-tidy on what has changed
# make setup   the set-up alone
# make format  formats all sources
.PHONY: run check test test-programs bench fuzz lint static format setup test-setup clean
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

# Three processes run tests at once, each test file in one of them: tests wait for a good part of their time, so that
# two would leave processors idle. Tests that measure time come after all others, one by one. The last line of each
# part says what was not tested here; in CI (CI=true) that is a failure.
parallel = -n 3 --dist loadfile --no-loadscope-reorder
# The files of the second part: collecting all others again takes seconds.
alone = $$(grep -rl --include='*.py' 'mark\.alone' tests | sort)
marked = lab or guest or browser or programs or slow or alone

check: test-setup static
	@$(ctest) --label-exclude "slow|acceptance"
	@cd web && $(node) npm run --silent test
	@$(python) -m pytest -q $(parallel) -m "not ($(marked))"

# Every part runs, also after one that failed; 5 says that ONLY left no test in a part. clang-tidy takes the time in which
# tests wait, and is over before those that measure time; "timeout" ends it with all that it started.
test: test-setup static
	@failed=; \
	timeout 30m nice -n 19 $(python) packaging/tidy.py >build/tidy.log 2>&1 & tidy=$$!; \
	trap 'kill $$tidy; exit 130' INT TERM; \
	$(ctest) --label-exclude acceptance || failed=1; \
	(cd web && $(node) npm run --silent test) || failed=1; \
	$(python) -m pytest -q $(parallel) -m "not alone" $(ONLY) || [ $$? = 5 ] || failed=1; \
	wait $$tidy || { cat build/tidy.log; echo "clang-tidy found the above, or took over 30 minutes"; failed=1; }; \
	trap - INT TERM; \
	$(python) -m pytest -q -m "alone" $(or $(ONLY),$(alone)) || [ $$? = 5 ] || failed=1; \
	[ -z "$$failed" ]

test-programs: test-setup
	@packaging/setup.sh programs
	@$(python) tests/fixtures/heap_programs.py

ctest = ctest --test-dir build --output-on-failure --timeout 300 -j2
node = PATH="$$(../packaging/setup.sh node):$$PATH"

# Sources of C and C++; fixtures of tests included.
cpp = $$(git ls-files '*.cpp' '*.hpp' '*.c' '*.h')

fuzz:
	@packaging/setup.sh acceptance
	@$(python) packaging/fuzz.py $(TIME)

lint: test-setup static
	@$(python) packaging/tidy.py

static: test-setup
	@$(python) -m ruff check python tests bench docs packaging
	@$(python) -m ruff format --check -q python tests bench docs packaging
	@.venv/bin/clang-format --dry-run -Werror $(cpp)
	@$(python) -m mypy --no-error-summary
	@cd web && $(node) npm run --silent check
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
