# make demo, make test: each does its own set-up first, and nothing twice.
# Tests wait for flushes and for programs that they start: three of them keep two cores busy.
PYTEST = .venv/bin/pytest -n 3 --dist loadgroup

# Where this is set, every start of a command compiles all its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup guest suites demo test nightly endurance endurance-ledger check bench fuzz sanitize docs lock clean

help:
	@echo "make setup   .venv/bin/f2tools and what the tests need, through apt and PyPI"
	@echo "make demo    the main job on real images"
	@echo "make test    all tests, with the C tools and the real kernel as judges"
	@echo "make nightly all that the tests do in small, as a whole: every power cut, a million random operations, each area lost in turn, fsx by 200,000 operations, the papers' evaluations; some hours, and run again it goes on"
	@echo "make endurance SHARD=3/20   a third of twenty shards of the runs without an end, at most an hour; LIST=1 lists them"
	@echo "make check   ruff, basedpyright, import-linter"
	@echo "make bench   side by side with the C tools"
	@echo "make fuzz    hostile images, coverage-guided, on from where it ended; FUZZ_SECONDS=60; KIND=container, undo,"
	@echo "             overlay, tar, trace, requests, texts, vsl, dfs, dffs or index: other files; fuse: requests to a mount; http:"
	@echo "             what a web server answers"
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

# Files of tests lie in memory where there is plenty; a disk takes half as long again.
test: guest suites
	PYTEST_DEBUG_TEMPROOT=$$(scripts/room-for-tests) $(PYTEST)

# What `make test` does in small, with all there is; a piece after the other, and run again it goes on.
nightly: guest suites
	.venv/bin/python -m tests.endurance shard 1/1 --only nightly,power,machine --minutes 6000 --jobs $(JOBS)

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
