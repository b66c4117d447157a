# make demo, make test: each does its own set-up first, and nothing twice.
PYTEST = .venv/bin/pytest -n 2 --dist loadgroup

# Where this is set, every start of a command compiles all its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup guest suites demo test nightly endurance endurance-ledger check bench fuzz sanitize docs lock clean

help:
	@echo "make setup   .venv/bin/f2tools and what the tests need, through apt and PyPI"
	@echo "make demo    the main job on real images"
	@echo "make test    all tests, with the C tools and the real kernel as judges"
	@echo "make nightly 100,000 random operations, every power cut, 60 crashes of the kernel, ten times the volume overwritten, 100 kills of a mount, a million operations of fsx, the papers' evaluations: some hours"
	@echo "make endurance SHARD=3/20   a third of twenty shards of the runs without an end, at most an hour; LIST=1 lists them"
	@echo "make check   ruff, basedpyright, import-linter"
	@echo "make bench   side by side with the C tools"
	@echo "make fuzz    hostile images, coverage-guided, on from where it ended; FUZZ_SECONDS=60; KIND=container, undo, overlay, tar or trace: other files"
	@echo "make sanitize  the compiled core as gcc's sanitizers watch it: its tests, hostile input, damaged volumes repaired; an hour"
	@echo "make docs    docs/ as a site with search, in .cache/site; a link that leads nowhere is an error"
	@echo "make lock    resolve the dependencies anew"

setup:
	@scripts/setup

# A guest that can't be built is named here; its tests then fail in CI and are skipped elsewhere.
guest: setup
	@.venv/bin/python -m tests.kernel.build_guest > /dev/null || true

# The suites that a mount is held to; the same holds for one that can't be built.
suites: setup
	@scripts/suites

demo:
	@scripts/setup demo
	@scripts/demo.sh

test: guest suites
	$(PYTEST)

# The judges of the write engine with all they have; `make test` runs the same ones with less.
nightly: guest suites
	F2TOOLS_HOSTILE_ROUNDS=10 F2_STATEFUL_OPERATIONS=120000 F2_POWER_SAMPLES=2000 F2_OVERWRITES=10 F2_CRASHES=60 F2_CLEAN_CUTS=100000 \
		F2_RESIZE_SEQUENCES=60 F2_RESIZE_STEPS=8 F2_RESIZE_CUTS=300 F2_RESIZE_KERNEL=24 F2_DEFRAG_SEEDS=200 F2_FORENSIC_DAMAGES=300 F2_FORENSIC_LIVES=200 F2_FORENSIC_SECONDS=120 F2_TUNE_SWITCHES=all F2_FSCK_FUZZ=400 F2_FSCK_EVERY=1 F2_START_GONE=1 F2_TRACE_SEEDS=20 F2_FTL_BLOCKS=8192 F2_REAL_DEVICES=all F2_SUITE_FACTOR=25 F2_FLEET_IMAGES=all \
		$(PYTEST) tests/stateful tests/power tests/f2fs/write tests/recover tests/clean tests/defrag tests/resize tests/tune tests/forensics \
		tests/fsck tests/trace tests/ftl tests/kernel tests/mount tests/fleet tests/experiment tests/hostile tests/edit
	rm -rf .cache/experiments
	.venv/bin/f2tools experiment all --scale 1/64 -o .cache/experiments/engine
	.venv/bin/f2tools experiment all --scale 1/64 --on guest -o .cache/experiments/guest

# Runs without an end, in shards of at most MINUTES; ONLY=images,fsx are the campaigns.  Run again, it goes on.
MINUTES = 60
JOBS = 2
endurance: guest suites
ifdef LIST
	@.venv/bin/python -m tests.endurance list
else
	.venv/bin/python -m tests.endurance shard $(or $(SHARD),1/1) --minutes $(MINUTES) --jobs $(JOBS) $(if $(ONLY),--only $(ONLY))
endif

# What was run goes into the ledger, docs/endurance.md.
endurance-ledger: setup
	.venv/bin/python -m tests.endurance sum
	.venv/bin/python -m tests.endurance ledger

check: setup
	@failed=0; for tool in "ruff check" basedpyright lint-imports; do \
		echo "$$tool"; .venv/bin/$$tool || failed=1; done; exit $$failed

bench: setup
	.venv/bin/python bench/run.py

FUZZ_SECONDS = 60
KIND = volume
fuzz: setup
	@.venv/bin/python -c 'import atheris' 2>/dev/null || .venv/bin/python -m pip install --quiet --require-hashes -r requirements-fuzz.lock
	.venv/bin/python -m tests.hostile.fuzz $(KIND) -max_total_time=$(FUZZ_SECONDS)

# What a sanitizer says fails it.
sanitize: setup
	.venv/bin/python -m tests.native.sanitized -m pytest -n 2 tests/native tests/hostile tests/dump tests/mkfs
	for image in base casefold compress-lz4 plain sections; do \
		.venv/bin/python -m tests.native.sanitized -m tests.fsck.fuzz $$image 1 40 .cache || exit; done

# The site, in an environment of its own: nothing of what makes it is needed to run or to test f2tools.
docs:
	@scripts/docs

lock:
	scripts/lock

clean:
	rm -rf .cache .pytest_cache .ruff_cache .hypothesis build
