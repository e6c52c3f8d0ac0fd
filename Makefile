# make demo: set everything up and run the main job against a local server.
# make test: set everything up, check and test it all.
# make bench: measure cold CLI, warm CLI, HTTP and the bare limit side by side.
.PHONY: help setup demo test bench lint clean
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint requirements.lock

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo 'make setup: only the virtual environment. make lint: ruff and mypy. make clean: remove what these made.'

demo: $(VENV)/run.stamp
	$(BIN)/locust --headless --only-summary --scenario pilot_stateless --local

bench: $(VENV)/run.stamp
	$(BIN)/python -m prep.bench

test: lint
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile  # they wait more than they work

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

setup: $(VENV)/dev.stamp

$(VENV)/run.stamp: requirements.txt requirements.lock prep/find_python.sh
	@python=$$(PYTHON="$(PYTHON)" sh prep/find_python.sh) && \
	    echo "setting up $(VENV) with $$python" && "$$python" -m venv --clear $(VENV)
	@$(PIP) --requirement requirements.txt
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.txt
	@echo "adding what the tests need"
	@$(PIP) --requirement requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) .bin .mypy_cache .ruff_cache .pytest_cache .hypothesis
