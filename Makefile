# make run     set up what running needs, then qualify this machine
# make test    set up what the tests need, then run every test
# make bench   every benchmark under bench/ (ONLY=net for one area): one JSON line a figure
# make lint    formatting, types, the direction of imports, clang-tidy on what has changed
# make setup   the set-up alone
# make format  formats all sources
.PHONY: run test bench lint format setup test-setup clean
.DEFAULT_GOAL := run

python := .venv/bin/python
export PYTHONPATH := python

run: setup
	@./assay check

setup:
	@packaging/setup.sh run

test-setup:
	@packaging/setup.sh test

test: test-setup lint
	@ctest --test-dir build --output-on-failure --timeout 300
	@$(python) -m pytest -q $(ONLY)

# Sources of C and C++; fixtures of tests included.
cpp = $$(git ls-files '*.cpp' '*.hpp' '*.c' '*.h')

lint: test-setup
	@$(python) -m ruff check python tests bench docs packaging
	@$(python) -m ruff format --check -q python tests bench docs packaging
	@.venv/bin/clang-format --dry-run -Werror $(cpp)
	@$(python) -m mypy --no-error-summary
	@cd web && PATH="$$(../packaging/setup.sh node):$$PATH" npm run --silent check
	@PYTHONPATH=python .venv/bin/lint-imports --no-cache >build/lint-imports.log || { cat build/lint-imports.log; exit 1; }
	@$(python) packaging/tidy.py

# Writes what lint would ask for.
format: test-setup
	@$(python) -m ruff format -q python tests bench docs packaging
	@.venv/bin/clang-format -i $(cpp)
	@cd web && PATH="$$(../packaging/setup.sh node):$$PATH" npm run --silent format

bench: test-setup
	@$(python) bench/run.py $(ONLY)

clean:
	@rm -rf build web/dist
