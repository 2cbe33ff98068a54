.PHONY: quick locks test test-a-f test-g-r test-s-z test-others npm etcd torture mutants bench measure

# SQLite's code was compiled from C to Go. The race detector would make it four times as slow, to watch what
# no test of ours can break.
race = -race '-gcflags=modernc.org/...=-race=false'

# The whole gate of a change, but for what .ci/run adds. The tests of engine take the longest, one
# after the other, and many of all tests wait: for a disk, for other processes, until a lease has run
# out. So engine has three processes, and there are more packages at a time than processors.
test:
	@files=$$(gofmt -l .); test -z "$$files" || { echo "not formatted: $$files"; exit 1; }
	go vet ./...
	go list $(race) -export ./... >/dev/null # compiles, once for all that follows, and links nothing
	@$(MAKE) --no-print-directory -j 4 test-a-f test-g-r test-s-z test-others

test-a-f:
	go test $(race) -vet=off -timeout 1h -run '^Test[A-F]' ./engine

test-g-r:
	go test $(race) -vet=off -timeout 1h -run '^Test[G-R]' ./engine

test-s-z:
	go test $(race) -vet=off -timeout 1h -skip '^Test[A-R]' ./engine

# The tests of world/npm start Node, and have time limits: they run apart.
test-others:
	go test $(race) -vet=off -timeout 1h -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) $$(go list ./... | grep -vE '/(engine|world/npm)$$')

# TypeScript workflows on a Weft server. It needs what npm ci --ignore-scripts installs in world/npm.
npm:
	CI=1 go test $(race) -count=1 -timeout 2h ./world/npm

# Some of the tests of the engine and of the control plane that have a subtest for each store, on etcd. make torture runs
# all of the engine's.
etcd:
	storage/etcd/testdata/root/run test -count=1 -timeout 30m -run '^(TestHooksEndWithTheirRun|TestInfoHasTheFailureOfResult|TestPageOfTheLongestNames|TestReading.*|TestRetention|TestRetentionOf.*|TestRetentionWaitsForSignals|TestRetryOfWhatIsPurgedMeanwhile|TestSignalClearedWhileItIsReceived|TestResolve.*|TestTerminateWhatNeverRests|TestWhatComesBesideARemoval|TestWhatTimedOutIsRecordedAsThat|TestAnOperatorDecidesWhatTimedOut|TestReplayOfWhatCannotBeDecodedIsHeld|TestCompensateWhoseResultCannotBeDecoded|TestLateReturnLeavesTheQuestion)$$/^etcd$$|^TestEveryStoreCallMayFail$$/^etcd$$/^(steps|signals)$$|^TestSimulationOnStores$$/^etcd$$' ./engine
	storage/etcd/testdata/root/run test -count=1 -timeout 10m -run '^Test64StartsAtOnceAreOne$$/^etcd$$' ./control

# The inner loop: no servers and no kills.
quick:
	go vet ./...
	go test -short ./...

# The tests of the inner loop in a build that checks the order of locks.
locks:
	go test -short -tags weftlocks ./internal/lock ./engine

# The same tests with more rounds. The simulations are there again without the race detector, with which no
# seed is played twice.
torture:
	WEFT_TORTURE=1 WEFT_RESTARTS=200 WEFT_KILLS=1000 WEFT_DAMAGES=10000 go test $(race) -timeout 2h -count=1 $$(go list ./... | grep -v '/world/npm$$')
	WEFT_TORTURE=1 $(MAKE) npm
	WEFT_TORTURE=1 go test -timeout 2h -count=1 -run 'TestSimulation$$|TestSimulationOnStores' ./engine ./idempotency
	go run ./examples/crash -kills 1000 -store sqlite
	go run ./examples/crash -kills 1000 -store bolt
	go run ./examples/crash -kills 1000 -store postgres
	go run ./examples/cluster -kills 2000 -pauses 2000 -engines 4
	go run ./examples/cluster -kills 1000 -pauses 1000 -engines 4 -store sqlite
	go run ./examples/once -kills 1000 -store sqlite
	go run ./examples/once -kills 1000 -store bolt
	go run ./examples/once -kills 1000 -store shared
	go run ./examples/once -kills 1000 -store postgres
	go run ./examples/once -pauses 200 -store shared
	go run ./examples/once -pauses 200 -store postgres
	go run ./examples/restarts -kills 200 -store sqlite
	go run ./examples/restarts -kills 200 -store postgres
	testdata/releases/run 1000
	testdata/mutants/run
	go run ./examples/payment -kills 1000 -store sqlite
	go run ./examples/payment -kills 1000 -store postgres
	go run ./examples/subscription -kills 200 -store sqlite
	go run ./examples/subscription -kills 200 -store postgres
	cd storage/pebble && WEFT_TORTURE=1 WEFT_KILLS=200 WEFT_DAMAGES=10000 go test -timeout 2h -count=1 ./...
	cd storage/etcd && WEFT_TORTURE=1 go test $(race) -timeout 2h -count=1 ./...
	storage/etcd/testdata/root/run test -count=1 -timeout 2h -run '/^etcd$$' -skip '^(TestSimulation|TestWhatALaterReleaseWroteIsKept)$$' ./engine
	$(MAKE) etcd
	storage/etcd/testdata/root/run run ./examples/crash -kills 1000 -store etcd
	storage/etcd/testdata/root/run run ./examples/cluster -kills 1000 -pauses 1000 -engines 3 -store etcd
	cd internal/apitest && go test $(race) -timeout 1h -count=1 ./...
	cd idempotency/consumer/natstest && WEFT_TORTURE=1 go test $(race) -timeout 10m -count=1 ./...

# Faults made by hand, each of which some test must find.
mutants:
	testdata/mutants/run

bench:
	go test -run '^$$' -bench . -benchmem ./...

# Weft and others side by side: see docs/performance.md, which also says what a
# quick look is. Takes most of an hour, on a machine that does nothing else.
measure:
	cd benchmarks && go run . -json values.jsonl -markdown
