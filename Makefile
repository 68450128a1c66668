# make demo: an RNNLM training graph placed over two workers, measured. make test: all tests.
# make docs: schedules drawn, the demo again, and the documents' transcript and tables rewritten.
# make rival: three Keras models measured beside tf.distribute, and that page's table rewritten.
# make gpu-check: tests and every kind of command on this machine's GPUs, logs in gpu_check/;
# GPU_FLAGS="--cluster=workers:2 --tiny" tries the script on CPUs (tests/tables/gpu_check.py).
# make benchmarks: every algorithm on every benchmark graph, a day; it goes on where it was, and
# BENCH_FLAGS says which part (tests/tables/suite.py).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check docs rival benchmarks gpu-check clean

$(VENV)/installed: setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	-$(BIN)/python -P -c 'from tfplace.compilation.warm_up import warm_up_all; warm_up_all()'
	touch $@

demo: $(VENV)/installed
	mkdir -p demo
	$(BIN)/tfplace graph rnnlm --hidden_size=512 --num_steps=10 --vocab_size=2000 \
	  --output=demo/rnnlm.pb --overwrite
	$(BIN)/tfplace optimize demo/rnnlm.pb --cluster=workers:2 --budget_seconds=60 \
	  --output_dir=demo/rnnlm_placed --overwrite

test: $(VENV)/installed
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile

check: $(VENV)/installed
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy

docs: $(VENV)/installed
	$(BIN)/python -m tests.tables.draw_schedules
	$(BIN)/python -m tests.tables.rewrite_docs $(DOCS_FLAGS)

rival: $(VENV)/installed
	$(BIN)/python -m tests.rival --page

benchmarks: $(VENV)/installed
	$(BIN)/python -m tests.tables.suite $(BENCH_FLAGS)

gpu-check: $(VENV)/installed
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python -m tests.tables.gpu_check $(GPU_FLAGS)

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache
