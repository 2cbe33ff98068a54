package storagetest

// A rule is one sentence of the contract and the check for it.
type rule struct {
	name  string
	says  string   // printed if the rule is broken
	needs []string // capability names, as for storage.Require
	check func(*trial)
}

const (
	conditionalBatch = "conditionalBatch"
	atomicBatch      = "atomicBatch"
	readAfterWrite   = "readAfterWrite"
	scanConsistency  = "scanConsistency"
)

var rules = []rule{
	// One key.
	{"PutIsGot", "Get returns what Put stored", nil, putIsGot},
	{"MissingKeyIsNotFound", "Get of a key that does not exist returns ErrNotFound", nil, missingKeyIsNotFound},
	{"PutOverwrites", "Put replaces any previous value", nil, putOverwrites},
	{"DeleteRemoves", "a deleted key is not found, not scanned, and can be put again", nil, deleteRemoves},
	{"DeleteOfMissingKeyIsFine", "Delete of a key that does not exist is no error", nil, deleteOfMissingKeyIsFine},
	{"EmptyValueIsThere", "an empty value is returned as an empty value, not as ErrNotFound", nil, emptyValueIsThere},
	{"KeysAndValuesAreBytes", "keys and values may be any bytes, and are returned unchanged", nil, keysAndValuesAreBytes},
	{"LongestKeyIsTaken", "a key of MaxKey bytes is accepted", nil, longestKeyIsTaken},
	{"LongKeyIsRefused", "a batch with a key longer than MaxKey returns ErrInvalidBatch, and Get of such a key ErrNotFound", nil, longKeyIsRefused},
	{"LargeValueIsTaken", "a value may be large", nil, largeValueIsTaken},

	// Ranges.
	{"EmptyStoreScansEmpty", "Scan of an empty store returns an empty page", nil, emptyStoreScansEmpty},
	{"ScanIsInByteOrder", "a page is in the order of bytes.Compare", nil, scanIsInByteOrder},
	{"StartIsIncluded", "a range begins at its Start, or at the next key after it", nil, startIsIncluded},
	{"EndIsExcluded", "a range ends before its End", nil, endIsExcluded},
	{"NilBoundsAreOpen", "a nil Start begins at the first key, a nil End ends after the last", nil, nilBoundsAreOpen},
	{"EmptyEndIsNotNil", "an End that is empty but not nil is before every key", nil, emptyEndIsNotNil},
	{"BackwardRangeIsEmpty", "a range whose Start is not before its End is empty", nil, backwardRangeIsEmpty},
	{"PrefixIsExact", "the range of a prefix contains exactly the keys that begin with it, also with 0xff bytes", nil, prefixIsExact},
	{"LimitBoundsPage", "a page has the first Limit entries of its range, or all if there are fewer", nil, limitBoundsPage},
	{"NoLimitIsDefault", "a page whose Limit is 0 or negative has DefaultLimit entries", nil, noLimitIsDefault},
	{"LongPageIsWhole", "a page has Limit entries of a range that has as many, also if Limit is larger than DefaultLimit", nil, longPageIsWhole},
	{"LargePageIsWhole", "a page has Limit entries of a range that has as many, also if they are large", nil, largePageIsWhole},
	{"ReverseBeginsAtEnd", "a reverse page begins with the last key of its range", nil, reverseBeginsAtEnd},
	{"PagesCoverRange", "all pages together contain each entry of the range once", nil, pagesCoverRange},
	{"LoopMayWrite", "Scan leaves no transaction open: a caller may write between pages", nil, loopMayWrite},

	// Conditions.
	{"EqualHolds", "Equal holds if the bytes are the same", []string{conditionalBatch}, equalHolds},
	{"EqualFails", "Equal does not hold for other bytes or a missing key", []string{conditionalBatch}, equalFails},
	{"AbsentHolds", "Absent holds for a missing key", []string{conditionalBatch}, absentHolds},
	{"AbsentFails", "Absent does not hold for an existing key, even with an empty value", []string{conditionalBatch}, absentFails},
	{"AbsentStaysAbsent", "Absent may be a condition on a key that the batch deletes, and the key stays absent", []string{conditionalBatch}, absentStaysAbsent},
	{"PresentHolds", "Present holds for an existing key, whatever its value", []string{conditionalBatch}, presentHolds},
	{"PresentFails", "Present does not hold for a missing key", []string{conditionalBatch}, presentFails},
	{"ConflictWritesNothing", "a batch with a condition that does not hold returns ErrConflict and writes nothing", []string{conditionalBatch}, conflictWritesNothing},
	{"EveryConditionIsJudged", "a batch is applied only if all of its conditions hold", []string{conditionalBatch}, everyConditionIsJudged},
	{"ConditionsComeFirst", "conditions are evaluated against the state before the batch", []string{conditionalBatch}, conditionsComeFirst},
	{"OnlyConditions", "a batch of conditions only returns whether they hold", []string{conditionalBatch}, onlyConditions},
	{"NoConditionsNoConflict", "a batch without conditions never conflicts", nil, noConditionsNoConflict},

	// Batches.
	{"EmptyBatchIsFine", "an empty batch succeeds", nil, emptyBatchIsFine},
	{"OpsInOrder", "the operations of a batch are applied in order", nil, opsInOrder},
	{"DeleteRangeIsExact", "DeleteRange removes from Start to before End and nothing else", nil, deleteRangeIsExact},
	{"DeleteRangeIsWhole", "DeleteRange ignores Limit and Reverse", nil, deleteRangeIsWhole},
	{"UrgentIsABatch", "an Urgent batch has the same effect as any other", nil, urgentIsABatch},
	{"UrgentIsConditional", "an Urgent batch is applied only if its conditions hold", []string{conditionalBatch}, urgentIsConditional},
	{"InvalidOpsAreRefused", "a batch with an invalid operation returns ErrInvalidBatch and writes nothing", nil, invalidOpsAreRefused},
	{"InvalidConditionsAreRefused", "a batch with an invalid condition returns ErrInvalidBatch and writes nothing", []string{conditionalBatch}, invalidConditionsAreRefused},
	{"LargestBatchIsTaken", "a batch of MaxBatch is accepted", nil, largestBatchIsTaken},
	{"TooLargeIsRefused", "a batch larger than MaxBatch returns ErrInvalidBatch and writes nothing", nil, tooLargeIsRefused},
	{"GroupIsCounted", "Commit sets Batch.Group to 1 or more, or leaves it as it is, and leaves it with every error but ErrConflict", nil, groupIsCounted},
	{"ManyConditions", "a batch may have hundreds of conditions", []string{conditionalBatch}, manyConditions},

	// Ownership of bytes.
	{"CallersBytesAreCopied", "a store neither keeps nor changes the bytes that a caller passed", nil, callersBytesAreCopied},
	{"ReturnedBytesAreTheCallers", "a caller may modify returned bytes", nil, returnedBytesAreTheCallers},
	{"BytesAreNotSharedByCalls", "concurrent calls do not share bytes", []string{readAfterWrite}, bytesAreNotSharedByCalls},

	// Concurrency.
	{"WriteIsSeenByAll", "after Commit returned, every read by anyone sees what it wrote", []string{readAfterWrite}, writeIsSeenByAll},
	{"OneAbsentWins", "of concurrent batches that require one key to be absent and put it, one is applied", []string{conditionalBatch}, oneAbsentWins},
	{"OneEqualWins", "of concurrent batches that require one value and change it, one is applied", []string{conditionalBatch}, oneEqualWins},
	{"NoIncrementIsLost", "concurrent read-modify-write cycles lose no update", []string{conditionalBatch, readAfterWrite}, noIncrementIsLost},
	{"EverybodyGetsATurn", "of 64 concurrent committers none is starved by the others", nil, everybodyGetsATurn},
	{"LaterSeesEarlier", "a condition that an acknowledged batch made true holds, however many commit concurrently", []string{conditionalBatch}, laterSeesEarlier},
	{"TransfersConserveSum", "concurrent batches over several keys conserve a sum", []string{conditionalBatch, atomicBatch}, transfersConserveSum},
	{"BatchIsSeenWhole", "a page shows all of a batch or none of it", []string{atomicBatch, scanConsistency}, batchIsSeenWhole},
	{"RangeIsReplacedWhole", "a page shows all of a batch's DeleteRange and the puts after it, or none", []string{atomicBatch, scanConsistency}, rangeIsReplacedWhole},
	{"BatchesInterleaveSerially", "two concurrent batches have the result of one after the other", []string{conditionalBatch, atomicBatch, readAfterWrite}, batchesInterleaveSerially},
	{"BadBatchFailsAlone", "an invalid, conflicting or withdrawn batch does not make others fail", []string{readAfterWrite}, badBatchFailsAlone},

	// Random tests.
	{"AgreesWithModel", "a store returns what a sorted map would return", nil, agreesWithModel},
	{"SomeSerialOrder", "concurrent batches have the result of some serial order", []string{conditionalBatch, atomicBatch, readAfterWrite, scanConsistency}, someSerialOrder},

	// Contexts.
	{"DoneContextWritesNothing", "a Commit whose context is already done returns the context's error and writes nothing", nil, doneContextWritesNothing},
	{"DoneContextReadsNothing", "a read whose context is already done returns the context's error and does no harm", nil, doneContextReadsNothing},
	{"CancelledIsAllOrNothing", "a Commit cancelled midway is applied as a whole or not at all, and is applied if it returns nil", []string{atomicBatch, readAfterWrite, scanConsistency}, cancelledIsAllOrNothing},
	{"CancelledIsNoConflict", "a Commit cancelled midway does not conflict with itself", []string{conditionalBatch}, cancelledIsNoConflict},

	{"CancelledScanIsWholeOrFails", "a Scan cancelled midway returns a whole page or an error", nil, cancelledScanIsWholeOrFails},

	// Opening and closing.
	{"CapabilitiesNeverChange", "Capabilities never change", nil, capabilitiesNeverChange},
	{"CapabilitiesAreAsPublished", "a store claims what the published table of adapters says", nil, capabilitiesAreAsPublished},
	{"ClosedIsClosed", "after Close every call returns ErrClosed, and a second Close ErrClosed or nil", nil, closedIsClosed},
	{"CloseAnswersCommits", "Close leaves no Commit without an answer, and loses no acknowledged batch", nil, closeAnswersCommits},
	{"CloseStopsGoroutines", "Close stops the goroutines that the store started", nil, closeStopsGoroutines},
	{"ReopenKeeps", "acknowledged batches are present when the store is opened again", nil, reopenKeeps},
	{"OpeningIsUnique", "each opening of a store that is not Shared has a unique Opening, and one of a Shared store has none", nil, openingIsUnique},
	{"SecondOpeningIsRefused", "a store that is not Shared refuses a second opening with ErrInUse, and works on", nil, secondOpeningIsRefused},
	{"OpeningsShare", "each opening of a Shared store sees and judges what the others write, and outlives them", []string{readAfterWrite}, openingsShare},
	{"WriteIsSeenByAllOpenings", "after Commit returned, every read by another opening of a Shared store sees what it wrote", []string{readAfterWrite}, onTwoOpenings(writeIsSeenByAll)},
	{"OneAbsentWinsOfOpenings", "of concurrent batches of two openings that require one key to be absent and put it, one is applied", []string{conditionalBatch}, onTwoOpenings(oneAbsentWins)},
	{"OneEqualWinsOfOpenings", "of concurrent batches of two openings that require one value and change it, one is applied", []string{conditionalBatch}, onTwoOpenings(oneEqualWins)},
	{"LaterSeesEarlierOfOpenings", "a condition that an acknowledged batch of another opening made true holds", []string{conditionalBatch}, onTwoOpenings(laterSeesEarlier)},
	{"OpeningsInterleaveSerially", "concurrent batches of two openings have the result of one after the other", []string{conditionalBatch, atomicBatch, readAfterWrite}, onTwoOpenings(batchesInterleaveSerially)},
	{"BatchIsSeenWholeByOpenings", "a page of one opening shows all of a batch of another or none of it", []string{atomicBatch, scanConsistency}, onTwoOpenings(batchIsSeenWhole)},
	{"RangeIsReplacedWholeOfOpenings", "a page of one opening shows all of another's DeleteRange and the puts after it, or none", []string{atomicBatch, scanConsistency}, onTwoOpenings(rangeIsReplacedWhole)},
	{"SomeSerialOrderOfOpenings", "concurrent batches of two openings have the result of some serial order", []string{conditionalBatch, atomicBatch, readAfterWrite, scanConsistency}, onTwoOpenings(someSerialOrder)},
	{"SessionIsProven", "a session of a storage.Prover has not ended before its Close, also if its store is closed, and has ended soon after it", nil, sessionIsProven},
}
