PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export TORCH ?= torch==2.13.0
# Tests wait for processes most of their time: more of them than cores run side by side.
WORKERS ?= 4

.PHONY: setup demo test check soak chaos bench bench-sched gpu docs site engines docs-check sim validate lock lock-check news ui clean

# By hash; the build of PyTorch is the machine's choice, and Corral itself is this tree.
$(VENV)/.demo: pyproject.toml deploy/setup.py deploy/requirements-build.txt
	@$(PYTHON) deploy/setup.py $(VENV) demo
	@touch $@

$(VENV)/.installed: pyproject.toml deploy/setup.py deploy/requirements-dev.txt
	@$(PYTHON) deploy/setup.py $(VENV) dev
	@touch $(VENV)/.demo $@

setup: $(VENV)/.installed

demo: $(VENV)/.demo
	@$(BIN)/python examples/tiny_gpt/demo.py $(if $(JSON),--json)

test: setup
	$(BIN)/pytest tests -n $(WORKERS) --dist loadgroup -m "not soak"

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	$(BIN)/python ui/build.py --check

soak: export NUMBA_OPT = 3
soak: setup
	$(BIN)/pytest tests -n 2 --dist loadgroup -m soak --timeout 5400 -rP
	$(BIN)/pytest tests -n 2 --dist loadgroup -m "hypothesis and not soak" --hypothesis-profile search

# Random faults against a real cluster; as root, nodes' disks are filled as well.
chaos: setup
	$(BIN)/python -m tests.chaos.run --seeds $(if $(SEEDS),$(SEEDS),1,2,3) --minutes $(or $(MINUTES),10)

sim: setup
	$(BIN)/python -m corral.simulate --seeds $(or $(SEEDS),500)

validate: setup
	$(BIN)/python validation/validate.py

bench: setup
	$(BIN)/python benchmarks/run.py

bench-sched: setup
	$(BIN)/python benchmarks/sched/run.py $(ROWS)

# No network: a Python that has Corral's libraries and PyTorch for CUDA already.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

gpu:
	@PYTHONPATH=src $(GPU_PYTHON) benchmarks/gpu/run.py

docs: setup
	$(BIN)/python docs/generate.py

# In an environment of its own: the tests need nothing of it.
site:
	@test -x .venv-site/bin/sphinx-build || ($(PYTHON) -m venv .venv-site && .venv-site/bin/pip install -q --require-hashes -r deploy/requirements-site.txt)
	.venv-site/bin/sphinx-build -q -W --keep-going -b html docs build/site
	@echo open build/site/index.html

engines: setup
	$(BIN)/python docs/engines.py

docs-check: setup
	$(BIN)/python docs/generate.py --check

lock: setup
	$(BIN)/python deploy/lock.py

lock-check:
	uv lock --check

news: setup
	$(BIN)/towncrier build --draft --version next

ui: setup
	$(BIN)/python ui/build.py

clean:
	rm -rf $(VENV) .venv-site build/site .mypy_cache .ruff_cache .pytest_cache .hypothesis
