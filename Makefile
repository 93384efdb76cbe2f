# Everything runs in .venv, made on first use with the versions pinned in constraints.txt.
PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
AUTOGLUON := .venv-autogluon
DEMO := refinecal-demo
WORKERS ?= 2
PIP_QUIET := --quiet --disable-pip-version-check

MINUTES ?= 30
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test test-full fuzz coverage lint format bench evidence gain predictions calibrators \
	paper-figures one-command averaging ensembles tabular vision examples clean

help:
	@echo "make demo    end-to-end example on data that comes with scikit-learn, with a report"
	@echo "make test    run the tests (about five minutes)"
	@echo "make test-full  run all tests, including slow and browser tests (about twenty minutes)"
	@echo "make fuzz MINUTES=30  search for counterexamples to the property tests, with random seeds"
	@echo "make coverage  run the tests and report line and branch coverage"
	@echo "make lint    check style, types and import layers"
	@echo "make format  fix style"
	@echo "make bench   benchmark against other packages: calibrators, metrics, stopping (about forty minutes)"
	@echo "make examples  run each framework's example in an environment with only that framework"
	@echo "make evidence DATA=folder  compare stopping metrics on Parquet tables (hours)"
	@echo "make one-command DATA=folder  compare fit and the estimator with five-fold boosting, pytabkit, AutoGluon (hours)"
	@echo "make averaging DATA=folder  compare stopping metrics for averaged models (hours)"
	@echo "make ensembles DATA=folder TABLES=folder  compare ensembles chosen by refinement and by loss (an hour)"
	@echo "make gain DATA=folder  compare predicted with measured gains of logistic regression (ten minutes)"
	@echo "make predictions DATA=folder  train models on Parquet tables and store their predictions (an hour)"
	@echo "make tabular DATA=folder  the paper's experiment on Parquet tables; resumes where it stopped (hours)"
	@echo "make vision DATA=folder  the paper's experiment on images with a small network; resumable (hours)"
	@echo "make paper-figures DATA=folder  implementations of temperature scaling, as in the paper (half an hour)"
	@echo "make calibrators  compare all calibrators on those predictions (an hour)"

setup: $(VENV)/ready

$(VENV)/ready: $(VENV)/ready-cli
	@echo "installing the test dependencies into $(VENV) (a few minutes the first time)"
	@$(VENV)/bin/pip install $(PIP_QUIET) -c constraints.txt -e ".[dev]"
	@touch $@

$(VENV)/ready-cli: pyproject.toml constraints.txt
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing the command line into $(VENV)"
	@$(VENV)/bin/pip install $(PIP_QUIET) -c constraints.txt -e ".[cli]"
	@touch $@

demo: $(VENV)/ready-cli
	@$(VENV)/bin/refinecal demo --out $(DEMO)

# One thread each: two test workers whose libraries use every core would compete. Bytecode is always cached,
# since tests start Python many times.
test test-full fuzz coverage: export OMP_NUM_THREADS ?= 1
test test-full fuzz coverage: export PYTHONDONTWRITEBYTECODE =
test: setup
	$(VENV)/bin/python -m pytest $(PARALLEL)

test-full: setup
	$(VENV)/bin/python -m pytest $(PARALLEL) -m "" --hypothesis-profile=full

fuzz: setup
	$(VENV)/bin/python tests/fuzz.py --minutes $(MINUTES) --workers $(WORKERS) $(if $(SEED),--seed $(SEED))

coverage: setup
	$(VENV)/bin/python -m coverage erase
	$(VENV)/bin/python -m coverage run -m pytest $(PARALLEL)
	$(VENV)/bin/python -m coverage combine --quiet
	$(VENV)/bin/python -m coverage report --skip-covered --sort=cover

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

format: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(BENCH)/ready
	$(BENCH)/bin/python -m benchmarks.run
	$(BENCH)/bin/python -m benchmarks.boosting
	$(BENCH)/bin/python -m benchmarks.evaluate
	$(BENCH)/bin/python -m benchmarks.calibrators speed
	$(BENCH)/bin/python -m benchmarks.theory
	$(BENCH)/bin/python -m benchmarks.vision

$(BENCH)/ready: pyproject.toml benchmarks/requirements.txt
	@test -x $(BENCH)/bin/pip || $(PYTHON) -m venv --clear $(BENCH)
	@echo "installing the packages to compare with into $(BENCH) (a few minutes the first time)"
	@$(BENCH)/bin/pip install $(PIP_QUIET) -r benchmarks/requirements.txt -e .
	@touch $@

# Each example runs in its own environment, with refinecal and the extra that it names.
examples:
	$(PYTHON) examples/fresh.py

evidence: setup
	$(VENV)/bin/python -m benchmarks.evidence --data $(DATA)

one-command: setup $(BENCH)/ready $(AUTOGLUON)/ready
	$(VENV)/bin/python -m benchmarks.one_command --data $(DATA) --python pytabkit $(BENCH)/bin/python \
		--python autogluon $(AUTOGLUON)/bin/python
	$(VENV)/bin/python -m benchmarks.one_command --data $(DATA) --time

$(AUTOGLUON)/ready: benchmarks/one_command/autogluon.txt
	@test -x $(AUTOGLUON)/bin/pip || $(PYTHON) -m venv --clear $(AUTOGLUON)
	@echo "installing AutoGluon into $(AUTOGLUON) (a few minutes the first time)"
	@$(AUTOGLUON)/bin/pip install $(PIP_QUIET) torch==2.13.0
	@$(AUTOGLUON)/bin/pip install $(PIP_QUIET) -r $<
	@touch $@

averaging: setup
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m benchmarks.averaging --data $(DATA)

# DATA holds stored predictions (.npz), TABLES Parquet tables.
ensembles: setup
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m benchmarks.ensembles --data $(DATA) $(if $(TABLES),--tables $(TABLES))

# Predictions and row losses are stored next to each other and not committed.
PREDICTIONS ?= predictions
JUDGED ?= $(PREDICTIONS)/judged

gain: setup
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m benchmarks.predict_gain --data $(DATA)

predictions: setup
	$(VENV)/bin/python -m benchmarks.calibrators predict --data $(DATA) --out $(PREDICTIONS)

calibrators: $(BENCH)/ready
	$(BENCH)/bin/python -m benchmarks.calibrators judge --predictions $(PREDICTIONS) --judged $(JUDGED)
	$(BENCH)/bin/python -m benchmarks.calibrators report --judged $(JUDGED)

# The paper's figures 4 and D.1: implementations of temperature scaling on default XGBoost.
PAPER ?= paper-runs

paper-figures: $(BENCH)/ready
	$(BENCH)/bin/python -m benchmarks.calibrators predict --data $(DATA) --out $(PAPER)/predictions --models xgboost \
		--steps 100
	$(BENCH)/bin/python -m benchmarks.calibrators judge --predictions $(PAPER)/predictions --judged $(PAPER)/judged --paper
	$(BENCH)/bin/python -m benchmarks.calibrators paper --judged $(PAPER)/judged

# The experiment of docs/tabular-experiment.md, by version 2 of its protocol. An existing run is resumed.
RUNS ?= tabular-runs-2
MIDDLING := spambase,wine_quality_white,churn,phoneme,wall_robot,optdigits,telco_churn,higgs_7500,jm1,pendigits,online_shoppers,dry_bean
experiment = $(VENV)/bin/refinecal experiment tabular --out $(RUNS)/$(1) \
	$$(test -e $(RUNS)/$(1)/plan.json && echo --resume || echo --data $(DATA) $(2))

tabular: setup
	$(call experiment,xgboost-default,--methods xgboost --splits 5)
	$(call experiment,realmlp-default,--methods realmlp --splits 2 --sets $(MIDDLING))
	$(call experiment,mlp-default,--methods mlp --splits 2)
	$(call experiment,xgboost-search,--methods xgboost --splits 2 --configs 10 --min-rows 10000)
	$(VENV)/bin/refinecal experiment report $(RUNS)/xgboost-default $(RUNS)/xgboost-search $(RUNS)/mlp-default \
		$(RUNS)/realmlp-default --out $(RUNS)/report --figures png --processes 2
	cp $(RUNS)/report/*.csv benchmarks/results/tabular

# The results of docs/vision-experiment.md: the recipe of the paper's figure 1, with networks that a CPU can train,
# on images that are flipped and no more, so that they over-fit in fewer epochs. Of CIFAR-10, its first three training
# batches are used.
VISION_RUNS ?= vision-runs
VISION_SEEDS ?= 5
VISION_PRECISION ?= bfloat16
VISION_THREADS ?= 1
comma := ,
images = $(VENV)/bin/refinecal experiment vision --out $(VISION_RUNS)/$(1) \
	$$(test -e $(VISION_RUNS)/$(1)/plan.json && echo --resume || echo --data $(DATA) --dataset $(1) --model $(2) \
	--epochs $(3) --seeds $(VISION_SEEDS) --schedule cosine --weight-decay 0 --augment flip \
	--precision $(VISION_PRECISION) --threads $(VISION_THREADS) $(4))

vision: setup
	$(call images,fashion-mnist,small,40)
	$(call images,cifar10,medium$(comma)small,50,--train-images 30000)
	$(VENV)/bin/refinecal experiment report $(VISION_RUNS)/fashion-mnist $(VISION_RUNS)/cifar10 \
		--out $(VISION_RUNS)/report --figures png
	cp $(VISION_RUNS)/report/*.csv benchmarks/results/vision

clean:
	rm -rf $(VENV) $(BENCH) $(AUTOGLUON) $(DEMO) .venv-examples .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.*
