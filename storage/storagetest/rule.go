package storagetest

// A rule is one sentence of the contract, and how it is checked.
type rule struct {
	name  string
	says  string   // what a failure prints as broken
	needs []string // capabilities, as storage.Require names them
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
	{"MissingKeyIsNotFound", "Get of a key that is not there answers ErrNotFound", nil, missingKeyIsNotFound},
	{"PutOverwrites", "Put stores its value whatever was there", nil, putOverwrites},
	{"DeleteRemoves", "what was deleted is not found, not scanned, and may be put again", nil, deleteRemoves},
	{"DeleteOfMissingKeyIsFine", "Delete of a key that is not there is no error", nil, deleteOfMissingKeyIsFine},
	{"EmptyValueIsThere", "a value that was put empty is returned empty, not as ErrNotFound", nil, emptyValueIsThere},
	{"KeysAndValuesAreBytes", "keys and values are any bytes, and come back as they were put", nil, keysAndValuesAreBytes},
	{"LongestKeyIsTaken", "a key may have MaxKey bytes", nil, longestKeyIsTaken},
	{"LongKeyIsRefused", "a key longer than MaxKey is ErrInvalidBatch in a batch, and is not found", nil, longKeyIsRefused},
	{"LargeValueIsTaken", "a value may be large", nil, largeValueIsTaken},

	// Ranges.
	{"EmptyStoreScansEmpty", "a store in which nothing was put scans empty", nil, emptyStoreScansEmpty},
	{"ScanIsInByteOrder", "a page is in the order of bytes.Compare", nil, scanIsInByteOrder},
	{"StartIsIncluded", "a range begins with its Start, or with the next key after it", nil, startIsIncluded},
	{"EndIsExcluded", "a range ends before its End", nil, endIsExcluded},
	{"NilBoundsAreOpen", "a nil Start is the first key, a nil End is after the last", nil, nilBoundsAreOpen},
	{"EmptyEndIsNotNil", "an End that is empty and not nil is before every key", nil, emptyEndIsNotNil},
	{"BackwardRangeIsEmpty", "a range whose Start is not before its End has no entries", nil, backwardRangeIsEmpty},
	{"PrefixIsExact", "the range of a prefix is the keys that begin with it, 0xff bytes included", nil, prefixIsExact},
	{"LimitBoundsPage", "a page has the first Limit entries of its range, or all if there are fewer", nil, limitBoundsPage},
	{"NoLimitIsDefault", "a page without Limit has DefaultLimit entries", nil, noLimitIsDefault},
	{"ReverseBeginsAtEnd", "a reverse page begins with the last key of its range", nil, reverseBeginsAtEnd},
	{"PagesCoverRange", "pages laid end to end are the range, each entry once", nil, pagesCoverRange},
	{"LoopMayWrite", "no page holds anything open: a caller may write between two of them", nil, loopMayWrite},

	// Conditions.
	{"EqualHolds", "Equal holds of the same bytes", []string{conditionalBatch}, equalHolds},
	{"EqualFails", "Equal does not hold of other bytes, nor of a missing key", []string{conditionalBatch}, equalFails},
	{"AbsentHolds", "Absent holds of a missing key", []string{conditionalBatch}, absentHolds},
	{"AbsentFails", "Absent does not hold of a key that is there, even with an empty value", []string{conditionalBatch}, absentFails},
	{"AbsentStaysAbsent", "Absent is a condition also of a key that the batch deletes, which stays absent", []string{conditionalBatch}, absentStaysAbsent},
	{"PresentHolds", "Present holds of a key that is there, whatever its value", []string{conditionalBatch}, presentHolds},
	{"PresentFails", "Present does not hold of a missing key", []string{conditionalBatch}, presentFails},
	{"ConflictWritesNothing", "a batch with a condition that does not hold answers ErrConflict and writes nothing", []string{conditionalBatch}, conflictWritesNothing},
	{"EveryConditionIsJudged", "a batch is applied only if all of its conditions hold", []string{conditionalBatch}, everyConditionIsJudged},
	{"ConditionsComeFirst", "conditions are judged on what was there before the batch", []string{conditionalBatch}, conditionsComeFirst},
	{"OnlyConditions", "a batch of only conditions answers whether they hold", []string{conditionalBatch}, onlyConditions},
	{"NoConditionsNoConflict", "a batch without conditions is never in conflict", nil, noConditionsNoConflict},

	// Batches.
	{"EmptyBatchIsFine", "a batch with nothing in it is done at once", nil, emptyBatchIsFine},
	{"OpsInOrder", "the operations of a batch are applied in their order", nil, opsInOrder},
	{"DeleteRangeIsExact", "DeleteRange removes from Start to before End and nothing else", nil, deleteRangeIsExact},
	{"DeleteRangeIsWhole", "DeleteRange does not look at Limit and Reverse", nil, deleteRangeIsWhole},
	{"UrgentIsABatch", "an Urgent batch does what any batch does", nil, urgentIsABatch},
	{"UrgentIsConditional", "an Urgent batch is judged by its conditions", []string{conditionalBatch}, urgentIsConditional},
	{"InvalidOpsAreRefused", "a batch with an invalid operation answers ErrInvalidBatch and writes nothing", nil, invalidOpsAreRefused},
	{"InvalidConditionsAreRefused", "a batch with an invalid condition answers ErrInvalidBatch and writes nothing", []string{conditionalBatch}, invalidConditionsAreRefused},
	{"LargestBatchIsTaken", "a batch of MaxBatch is taken", nil, largestBatchIsTaken},
	{"TooLargeIsRefused", "a batch above MaxBatch answers ErrInvalidBatch and writes nothing", nil, tooLargeIsRefused},
	{"ManyConditions", "a batch may have hundreds of conditions", []string{conditionalBatch}, manyConditions},

	// Whose bytes they are.
	{"CallersBytesAreCopied", "a store does not keep or change the bytes that a caller passed", nil, callersBytesAreCopied},
	{"ReturnedBytesAreTheCallers", "a caller may do with returned bytes what it likes", nil, returnedBytesAreTheCallers},
	{"BytesAreNotSharedByCalls", "calls at the same time do not share bytes", []string{readAfterWrite}, bytesAreNotSharedByCalls},

	// Many at once.
	{"WriteIsSeenByAll", "after Commit answered, every read by anybody sees what it wrote", []string{readAfterWrite}, writeIsSeenByAll},
	{"OneAbsentWins", "of many batches that want one key absent, one is applied", []string{conditionalBatch}, oneAbsentWins},
	{"OneEqualWins", "of many batches that change one value, one is applied", []string{conditionalBatch}, oneEqualWins},
	{"NoIncrementIsLost", "what was read is what is replaced: no update is lost", []string{conditionalBatch, readAfterWrite}, noIncrementIsLost},
	{"EverybodyGetsATurn", "of 64 who commit at the same time none waits as long as others come", nil, everybodyGetsATurn},
	{"LaterSeesEarlier", "a condition that an acknowledged batch made hold does hold, however many commit", []string{conditionalBatch}, laterSeesEarlier},
	{"TransfersConserveSum", "batches over several keys neither make nor lose anything", []string{conditionalBatch, atomicBatch}, transfersConserveSum},
	{"BatchIsSeenWhole", "a page shows all of a batch or none of it", []string{atomicBatch, scanConsistency}, batchIsSeenWhole},
	{"RangeIsReplacedWhole", "a page shows all of what a DeleteRange and the puts behind it did, or none", []string{atomicBatch, scanConsistency}, rangeIsReplacedWhole},
	{"BatchesInterleaveSerially", "batches at the same time end as if one had come after the other", []string{conditionalBatch, atomicBatch, readAfterWrite}, batchesInterleaveSerially},
	{"BadBatchFailsAlone", "an invalid, conflicting or withdrawn batch does not fail its neighbours", []string{readAfterWrite}, badBatchFailsAlone},

	// At random.
	{"AgreesWithModel", "a store answers what a sorted map answers", nil, agreesWithModel},
	{"SomeSerialOrder", "batches at the same time end as some order of them ends", []string{conditionalBatch, atomicBatch, readAfterWrite, scanConsistency}, someSerialOrder},

	// Contexts.
	{"DoneContextWritesNothing", "a Commit whose context is done before it begins answers so and writes nothing", nil, doneContextWritesNothing},
	{"DoneContextReadsNothing", "a read whose context is done before it begins answers so, and harms nothing", nil, doneContextReadsNothing},
	{"CancelledIsAllOrNothing", "a Commit cancelled in the middle is applied as a whole or not at all, and surely if it answered nil", []string{atomicBatch, readAfterWrite, scanConsistency}, cancelledIsAllOrNothing},
	{"CancelledIsNoConflict", "a Commit cancelled in the middle is not in conflict with itself", []string{conditionalBatch}, cancelledIsNoConflict},

	// A life.
	{"CapabilitiesNeverChange", "Capabilities never change", nil, capabilitiesNeverChange},
	{"CapabilitiesAreAsPublished", "a store claims what the table of adapters says", nil, capabilitiesAreAsPublished},
	{"ClosedIsClosed", "after Close every call answers ErrClosed, and a second Close that or nil", nil, closedIsClosed},
	{"CloseAnswersCommits", "Close leaves no Commit unanswered, and loses none that was acknowledged", nil, closeAnswersCommits},
	{"CloseStopsGoroutines", "Close ends the goroutines that a store began", nil, closeStopsGoroutines},
	{"ReopenKeeps", "what was acknowledged is there when the store is opened again", nil, reopenKeeps},
	{"OpeningIsUnique", "a store that is not Shared has an Opening that no other has", nil, openingIsUnique},
}
