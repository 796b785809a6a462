# Thin: what needs more than a line is in tools/. Works on a machine with Python >= 3.11, make, git and
# a network; everything else is installed by tools/bootstrap.py (into $(VENV) where possible).
#
#   make PYTHON=python3.13 VENV=.venv-3.13 test     another interpreter
#   make test TESTS=tests/unit PYTEST_ARGS=-x       a part of the tests

VENV ?= .venv
TESTS ?= tests
PYTEST_ARGS ?=
# Tests run in three processes; `PROCESSES=0` runs them in one.
PROCESSES ?= 3
RUN := $(VENV)/bin/python
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
FIND_PYTHON = for p in $(or $(PYTHON),python3.13 python3.12 python3.11 python3); do \
    if "$$p" -c '$(NEW_ENOUGH)' 2>/dev/null; then python="$$p"; break; fi; done; \
    if [ -z "$$python" ]; then \
    echo "Python 3.11 or newer is needed: install it (on Debian or Ubuntu with \`sudo apt-get install python3 python3-venv\`) or name it with \`make PYTHON=/path/to/python3\`." >&2; \
    exit 1; fi;
SET_UP = @$(FIND_PYTHON) PYTHON="$(PYTHON)" "$$python" tools/bootstrap.py --venv "$(VENV)"

.PHONY: help demo develop test lint types bench bench-check race growth bench-operate docs machine transactions delay-machine delivery-kills timed-put-kills repair-kills moving-changes moving-kills consumer-machine consumer-kills torn-reads soak many-queues leaks fuzz fuzz-native fuzz-kernels kills faults powercut powercut-real sanitize interop interop-soak ward gen spark-matrix wheel-test lowest coverage report-browser sdist debug clean
help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo:  ## set up and show what rocketstore does on stores made on the spot, with Spark at the end
	$(SET_UP) --for run
	@$(VENV)/bin/rocketstore demo --golden tests/golden/plain-5.3.3 --spark --plot build/demo.png

develop:  ## set up: environment, packages, native modules built in place
	$(SET_UP)

test: develop  ## run the tests
	@$(RUN) -m pytest -n $(PROCESSES) --dist loadgroup $(TESTS) $(PYTEST_ARGS)

lint: develop  ## check style, and the C headers one by one
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) tools/check_headers.py

types: develop  ## check types, and the stubs against the native modules
	@$(RUN) tools/check_types.py

bench: develop  ## measure native and reference kernels
	@$(RUN) -m pytest benchmarks -o python_files='bench_*.py' --benchmark-only $(PYTEST_ARGS)

# `make race RACE="--quick"`: every option is listed by `make race RACE=--help`.
race: develop  ## put and read beside RocketMQ's own jars, a bare C loop and embedded stores (RACE="--quick")
	@$(RUN) benchmarks/race $(RACE)

growth: develop  ## measure how cost grows with queues, segments, messages, bytes (GROWTH="--only queues --quick")
	@PYTHONPATH=benchmarks:src $(RUN) -m growth $(GROWTH)

# `make bench-operate OPERATE="--gib 8 --only checking"`; every option: OPERATE=--help.
bench-operate: develop  ## measure time and memory of doctor, plan, du, export and the like
	@PYTHONPATH=benchmarks:src $(RUN) -m operate $(OPERATE)

# UPDATE=1 writes the baselines, PATHS=put counts those paths only.
bench-check: develop  ## compare instruction counts with benchmarks/instruction_counts.json
	@PYTHONPATH=benchmarks:tools:src $(RUN) -m check $(if $(UPDATE),--update) \
	    $(if $(PATHS),--paths $(PATHS)) $(BENCH_CHECK_ARGS)

docs: develop  ## build the documentation site in build/docs, warnings being errors
	@$(RUN) -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

# Minutes of random puts, kills and lost files; another SEED is another run.
MINUTES ?= 5
SEED ?=
machine: develop  ## run the store's state machine for MINUTES (SEED=... repeats a run)
	@ROCKETSTORE_MACHINE_MINUTES=$(MINUTES) ROCKETSTORE_MACHINE_SEED=$(SEED) \
	    $(RUN) -m pytest -q -n 0 --timeout 0 \
	    tests/property/test_store_machine.py::test_store_machine -s $(PYTEST_ARGS)

transactions: develop  ## run the state machine of transactions (RUNS=2000), and kill committing processes (KILLS=500)
	@ROCKETSTORE_MACHINE_RUNS=$(or $(RUNS),2000) ROCKETSTORE_TRANSACTION_KILLS=$(or $(KILLS),500) \
	    $(RUN) -m pytest -q -n 0 --timeout 0 tests/property/test_transaction_machine.py \
	    tests/crash/test_transaction_kill.py $(PYTEST_ARGS)

delay-machine: develop  ## run the machine of delayed messages (RUNS=2000)
	@ROCKETSTORE_DELAY_RUNS=$(or $(RUNS),2000) $(RUN) -m pytest -q -n 0 --timeout 0 \
	    tests/property/test_delay_machine.py $(PYTEST_ARGS)

delivery-kills: develop  ## kill processes that deliver (KILLS=500)
	@ROCKETSTORE_DELIVERY_KILLS=$(or $(KILLS),500) $(RUN) -m pytest -q -n 0 --timeout 0 \
	    tests/crash/test_delivery_kill.py $(PYTEST_ARGS)

consumer-machine: develop  ## run the machine of consumers (RUNS=2000)
	@ROCKETSTORE_CONSUMER_RUNS=$(or $(RUNS),2000) $(RUN) -m pytest -q -n 0 --timeout 0 \
	    tests/property/test_consumer_machine.py $(PYTEST_ARGS)

consumer-kills: develop  ## kill processes that consume (KILLS=5000)
	@ROCKETSTORE_CONSUMER_KILLS=$(or $(KILLS),5000) $(RUN) -m pytest -q -n 0 --timeout 0 \
	    tests/crash/test_consumer_kill.py $(PYTEST_ARGS)

timed-put-kills: develop  ## kill processes that put timer messages (KILLS=500)
	@ROCKETSTORE_TIMED_PUT_KILLS=$(or $(KILLS),500) $(RUN) -m pytest -q -n 0 --timeout 0 \
	    tests/crash/test_timed_put_kill.py $(PYTEST_ARGS)

repair-kills: develop  ## kill what replaces a store's files at every change that it makes
	@ROCKETSTORE_REPAIR_STRIDE=1 $(RUN) -m pytest -q -n 0 --timeout 0 \
	    tests/unit/mending/test_reindex.py $(PYTEST_ARGS)

moving-changes: develop  ## kill what copies stores at every change that it makes
	@ROCKETSTORE_MOVING_STRIDE=1 $(RUN) -m pytest -q -n 0 --timeout 0 \
	    tests/unit/moving -k "kill or brokers" $(PYTEST_ARGS)

moving-kills: develop  ## kill repair, reindex, export, import, clone and replay anywhere (KILLS=200 SEED=...)
	@ROCKETSTORE_MOVING_KILLS=$(or $(KILLS),200) ROCKETSTORE_MOVING_SEED=$(SEED) \
	    $(RUN) -m pytest -q -n 0 --timeout 0 -s tests/crash/test_moving_kill.py $(PYTEST_ARGS)

torn-reads: develop  ## read beside a writer that rolls and deletes (READS=10000000 SEED=...)
	@$(RUN) tests/concurrency/torn_reads.py --reads $(or $(READS),10000000) --readers 2 \
	    $(if $(SEED),--seed $(SEED))

soak: develop  ## mixed load with cleanup for MINUTES=30 (SEED=...); figures and plot in build/soak
	@$(RUN) tests/concurrency/soak.py --out build/soak $(if $(SEED),--seed $(SEED)) \
	    --minutes $(if $(filter file,$(origin MINUTES)),30,$(MINUTES))

many-queues: develop  ## write, read and reopen a store of QUEUES=70000 queues; seconds and mappings
	@rm -rf build/many-queues
	@$(RUN) tests/support/many_queues_program.py build/many-queues $(or $(QUEUES),70000) default default default
	@rm -rf build/many-queues

leaks: develop  ## open and close a store of 100 segments 10,000 times, and look for what is left
	@ROCKETSTORE_LEAK_OPENS=10000 $(RUN) -m pytest -q -n 0 --timeout 0 tests/leaks $(PYTEST_ARGS)

fuzz: develop  ## damage whole stores and see that no promise breaks (MINUTES=5 SEED=...)
	@PYTHONPATH=fuzz:src $(RUN) -m store_fuzz --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED))

fuzz-native: develop  ## fuzz the C headers with sanitizers (RUNS=2000000 SEED=1)
	@$(RUN) fuzz/native_fuzz.py --runs $(or $(RUNS),2000000) --seed $(or $(SEED),1)

fuzz-kernels: develop  ## fuzz the Cython kernels with sanitizers, and the readers (RUNS=20000 SEED=1)
	@$(RUN) fuzz/kernel_fuzz.py --runs $(or $(RUNS),20000) --seed $(or $(SEED),1)

ROCKETMQ ?= 5.3.3
kills: develop  ## kill writers; one store in ten goes to RocketMQ, too (KILLS=20000 SEED=...)
	@$(RUN) tests/crash/kill_campaign.py --kills $(or $(KILLS),20000) $(if $(SEED),--seed $(SEED)) \
	    $(if $(ROCKETMQ),--rocketmq $(ROCKETMQ)) --report build/reliability/kills.json \
	    --keep build/reliability/kills-broken

CAMPAIGN = PYTHONPATH=src:tests $(RUN) -m crash
faults: develop  ## let every file operation of a run fail, one by one (RUNS=0: all, SEED=...)
	@for body in native reference; do ROCKETSTORE_KERNELS=$$body $(CAMPAIGN).faults \
	    --runs $(or $(RUNS),0) $(if $(SEED),--seed $(SEED)) \
	    --report build/reliability/faults-$$body.json || exit 1; done

damage: develop  ## damage stores at random places, and see that whole records are served (STORES=5000 SEED=...)
	@$(CAMPAIGN).damage_campaign --stores $(or $(STORES),5000) \
	    $(if $(SEED),--seed $(SEED)) --report build/reliability/damage.json

powercut: develop  ## judge states that a power cut may leave (STATES=5000000 SEED=...)
	@$(CAMPAIGN).power_cut_campaign --states $(or $(STATES),5000000) --processes $(PROCESSES) \
	    $(if $(SEED),--seed $(SEED)) --report build/reliability/powercut.json

powercut-real: develop  ## shut down ext4 and xfs under a writer, as root (CUTS=10000 SEED=...)
	@$(CAMPAIGN).real_power_cut --cuts $(or $(CUTS),10000) $(if $(SEED),--seed $(SEED)) \
	    --report build/reliability/powercut-real.json

sanitize: develop  ## run the tests on native modules built with ASan and UBSan, then with TSan
	@$(RUN) tools/sanitize.py address
	@$(RUN) tools/sanitize.py thread

interop: develop  ## run the real RocketMQ beside the library; writes docs/compatibility.md
	@rm -rf build/interop/results
	@ROCKETSTORE_CONFIG_SEEDS=$${ROCKETSTORE_CONFIG_SEEDS:-20} \
	    ROCKETSTORE_INTEROP_SEEDS=$${ROCKETSTORE_INTEROP_SEEDS:-0:20} \
	    ROCKETSTORE_BROKERS=$${ROCKETSTORE_BROKERS:-all} \
	    $(RUN) -m pytest -n $(PROCESSES) --dist loadgroup tests/interop $(PYTEST_ARGS)
	@$(RUN) tools/gen_compatibility.py

ward: develop  ## damage STORES=3000 stores by seed, repair them, and let the real RocketMQ read them (FIRST=0)
	@ROCKETSTORE_WARD_STORES=$(or $(STORES),3000) ROCKETSTORE_WARD_FIRST=$(or $(FIRST),0) \
	    $(RUN) -m pytest -q -rP -n $(PROCESSES) --timeout 0 tests/interop/test_ward.py tests/interop/test_forecasts.py $(PYTEST_ARGS)

interop-soak: develop  ## the same on further random stores for MINUTES (FIRST_SEED=... repeats)
	@$(RUN) tests/interop/run.py --minutes $(or $(MINUTES),30) --first-seed $(or $(FIRST_SEED),1000)

gen:  ## write what is generated from formats.py, status.py, dialect.py, config.py and the rooms
	@$(FIND_PYTHON) "$$python" tools/gen_formats.py && "$$python" tools/gen_format_pages.py && \
	    "$$python" tools/gen_architecture.py && "$$python" tools/gen_config_page.py

report-browser: develop  ## open report pages in Chromium and check them (PICTURE=1 renews the picture in the docs)
	@$(RUN) tools/report_browser.py $(if $(PICTURE),--picture) $(PYTEST_ARGS)

spark-matrix: develop  ## test with PySpark 4.3, 4.2, 4.1, and the scan with 3.5 (VERSIONS="4.1.*")
	@$(RUN) tools/spark_matrix.py $(VERSIONS)

lowest: develop  ## test with the lowest versions of packages that are allowed
	@$(RUN) tools/lowest.py $(PYTEST_ARGS)

coverage: develop  ## measure which lines the tests run: build/coverage/html (TESTS=tests/unit)
	@rm -rf build/coverage
	@status=0; \
	$(RUN) -m coverage run -m pytest -n $(PROCESSES) --dist loadgroup $(TESTS) $(PYTEST_ARGS) || status=$$?; \
	$(RUN) -m coverage combine -q && $(RUN) -m coverage html -q && \
	    $(RUN) -m coverage report --skip-covered --sort=cover && exit $$status

wheel-test: develop  ## build a wheel from the sdist and test it in an empty environment (WHEEL_ARGS=--all)
	@$(RUN) tools/wheel_test.py $(WHEEL_ARGS)

sdist: develop  ## make the source distribution in dist/
	@$(RUN) -m build --sdist

debug:  ## build with checks in the native code and run the tests on that
	$(SET_UP) --debug
	@$(RUN) -m pytest -n $(PROCESSES) --dist loadgroup $(TESTS) $(PYTEST_ARGS)

clean:  ## remove what was built; the environment stays
	rm -rf build dist src/rocketstore.egg-info .pytest_cache .mypy_cache .ruff_cache
	rm -f src/rocketstore/_native/*.so src/rocketstore/_native/*.pyd
