package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
)

// fresh is an empty store for a test: in memory, unless TestOnPostgres repeats it.
var fresh = func(testing.TB) storage.Storage { return new(memory.Store) }

// repeating: TestOnPostgres is repeating a test.
var repeating bool

type repeated struct {
	name string
	test func(*testing.T)
}

// What an engine does on a store in memory it does on PostgreSQL. Tests that take
// their time there are for WEFT_TORTURE; of the others it is every fourth one, and one of 24
// with the race detector: where they begin is drawn. Not among them are those that tell what only a store with one opener does,
// which knows at once that an engine is dead, and those that sleep for days, and so poll
// a real server a hundred thousand times.
func TestOnPostgres(t *testing.T) {
	tests := repeatedOnPostgres
	if os.Getenv("WEFT_TORTURE") != "" {
		tests = slices.Concat(tests, slowOnPostgres)
	}
	tests = every(torture.Rounds(1, 4, 24), tests)
	defer func(was func(testing.TB) storage.Storage) { fresh, repeating = was, false }(fresh)
	repeating = true
	url, stores := pgtest.URL(t), 0
	fresh = func(t testing.TB) storage.Storage {
		stores++
		// Without LISTEN and sessions: in a synctest bubble time stands still while
		// a connection is being read.
		o := &postgres.Options{Schema: fmt.Sprint("test", stores), NoListen: true, LeaseOnly: true}
		s, err := postgres.Open(context.Background(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	for _, r := range tests {
		t.Run(r.name, func(t *testing.T) {
			before := stores
			if r.test(t); stores == before {
				t.Error("it uses no store of PostgreSQL")
			}
		})
	}
}

// every returns each stride-th of all; where they begin is drawn.
func every[T any](stride int, all []T) (some []T) {
	for i := rand.IntN(stride); i < len(all); i += stride {
		some = append(some, all[i])
	}
	return some
}

var repeatedOnPostgres = []repeated{
	{"ErrorIdentitySurvives", TestErrorIdentitySurvives},
	{"ActivityWithoutAKeyIsAtLeastOnce", TestActivityWithoutAKeyIsAtLeastOnce},
	{"SignalTakesParkedRun", TestSignalTakesParkedRun},
	{"TakenRunKnowsItsSignals", TestTakenRunKnowsItsSignals},
	{"StartWhoseCallerGaveUp", TestStartWhoseCallerGaveUp},
	{"ParentIsParkedWhileItsChildEnds", TestParentIsParkedWhileItsChildEnds},
	{"DeathOfWhoRenewedMeanwhile", TestDeathOfWhoRenewedMeanwhile},
	{"TakingFails", TestTakingFails},
	{"IdleEngineAsksLittle", TestIdleEngineAsksLittle},
	{"HintOfWhatHasEndedIsClearedAway", TestHintOfWhatHasEndedIsClearedAway},
	{"UndrivenRunIsReachedWithinAPoll", TestUndrivenRunIsReachedWithinAPoll},
	{"NoRoomToTake", TestNoRoomToTake},
	{"TimeoutThatIsHeeded", TestTimeoutThatIsHeeded},
	{"BadActivityHoldsTheRun", TestBadActivityHoldsTheRun},
	{"ForeignRun", TestForeignRun},
	{"ProgressIsFoundByTheNextAttempt", TestProgressIsFoundByTheNextAttempt},
	{"ProgressOutlastsAnOutage", TestProgressOutlastsAnOutage},
	{"ProgressIsFenced", TestProgressIsFenced},
	{"ProgressThatIsNone", TestProgressThatIsNone},
	{"MaxConcurrent", TestMaxConcurrent},
	{"Rate", TestRate},
	{"ResourceScope", TestResourceScope},
	{"WaitingInLineEnds", TestWaitingInLineEnds},
	{"DeadlineOfARetryInLine", TestDeadlineOfARetryInLine},
	{"DeafAttemptKeepsItsScope", TestDeafAttemptKeepsItsScope},
	{"Branches", TestBranches},
	{"BranchFails", TestBranchFails},
	{"BranchesLeftBehind", TestBranchesLeftBehind},
	{"RunOfAnotherBranch", TestRunOfAnotherBranch},
	{"BranchesNestOnlySoDeep", TestBranchesNestOnlySoDeep},
	{"Map", TestMap},
	{"ManyTimersAtOnce", TestManyTimersAtOnce},
	{"CancelDuringAnActivity", TestCancelDuringAnActivity},
	{"CancelBeforeItRuns", TestCancelBeforeItRuns},
	{"CancelIsARequest", TestCancelIsARequest},
	{"CancelRacesCompletion", TestCancelRacesCompletion},
	{"CancelOverARestart", TestCancelOverARestart},
	{"Compensate", TestCompensate},
	{"CompensateAndCancel", TestCompensateAndCancel},
	{"InfoOfACompensation", TestInfoOfACompensation},
	{"CompensateGivesUpTheRest", TestCompensateGivesUpTheRest},
	{"CompensateOfWhatCameLate", TestCompensateOfWhatCameLate},
	{"CompensateOverARestart", TestCompensateOverARestart},
	{"CompensateIsBounded", TestCompensateIsBounded},
	{"CompensateOfChildren", TestCompensateOfChildren},
	{"Child", TestChild},
	{"ChildFails", TestChildFails},
	{"ChildIsPurgedBeforeItsParentLooked", TestChildIsPurgedBeforeItsParentLooked},
	{"ManyChildren", TestManyChildren},
	{"WorkflowFailuresAreContained", TestWorkflowFailuresAreContained},
	{"UnencodableResultIsFinal", TestUnencodableResultIsFinal},
	{"CompensateIsDecidedOnWhatIsRecorded", TestCompensateIsDecidedOnWhatIsRecorded},
	{"TimerThatLosesFiresOnce", TestTimerThatLosesFiresOnce},
	{"ClosedEngine", TestClosedEngine},
	{"CancelledContext", TestCancelledContext},
	{"OneRunAtATime", TestOneRunAtATime},
	{"GentleStopKeepsOutcomes", TestGentleStopKeepsOutcomes},
	{"CloseCutsAttemptsOff", TestCloseCutsAttemptsOff},
	{"ChildEndsWhileItsParentMoves", TestChildEndsWhileItsParentMoves},
	{"FunctionThatDoesNotComeBack", TestFunctionThatDoesNotComeBack},
	{"RunThatKillsTheProcess", TestRunThatKillsTheProcess},
	{"SameNameClaimsAnew", TestSameNameClaimsAnew},
	{"DamagedEngineRecord", TestDamagedEngineRecord},
	{"RestoredBackup", TestRestoredBackup},
	{"SignalMeetsAStartOfUnknownOutcome", TestSignalMeetsAStartOfUnknownOutcome},
	{"RetryOfARunThatIsBeingPutDown", TestRetryOfARunThatIsBeingPutDown},
	{"RetryOfUnknownOutcomeIsRecognised", TestRetryOfUnknownOutcomeIsRecognised},
	{"RetryOfAFailedWorkflow", TestRetryOfAFailedWorkflow},
	{"RetryTakesBackWhatItFailedOf", TestRetryTakesBackWhatItFailedOf},
	{"RetryThatDoesNotApply", TestRetryThatDoesNotApply},
	{"RetriedChild", TestRetriedChild},
	{"RetriesAtOnce", TestRetriesAtOnce},
	{"RetriedWorkflowReceives", TestRetriedWorkflowReceives},
	{"ActivityThatDoesNotComeBack", TestActivityThatDoesNotComeBack},
	{"StartBeforeTheEngineIsKnown", TestStartBeforeTheEngineIsKnown},
	{"LookAtAWorkflowThatIsBeingStarted", TestLookAtAWorkflowThatIsBeingStarted},
	{"SignalWhoseSenderGaveUp", TestSignalWhoseSenderGaveUp},
	{"BatchesOfASmallStore", TestBatchesOfASmallStore},
	{"SignOffIsRepeated", TestSignOffIsRepeated},
	{"SendHeedsItsContext", TestSendHeedsItsContext},
	{"HintsOfTwoSignalsWithOneID", TestHintsOfTwoSignalsWithOneID},
	{"ResultOfAnotherWorkflow", TestResultOfAnotherWorkflow},
	{"LoggerInsideAStep", TestLoggerInsideAStep},
	{"UnregisteredTypeIsLeftAlone", TestUnregisteredTypeIsLeftAlone},
	{"TypeThatWentAway", TestTypeThatWentAway},
	{"History", TestHistory},
	{"List", TestList},
	{"ConcurrentPurges", TestConcurrentPurges},
	{"ListGoesOnAfterADamagedRecord", TestListGoesOnAfterADamagedRecord},
	{"LosersLeaveNothing", TestLosersLeaveNothing},
	{"SelectComesToAnEnd", TestSelectComesToAnEnd},
	{"SelectOfNothing", TestSelectOfNothing},
	{"CancelledScope", TestCancelledScope},
	{"SendsThatArriveTogetherShareACommit", TestSendsThatArriveTogetherShareACommit},
	{"SendsOfOneIDThatArriveTogether", TestSendsOfOneIDThatArriveTogether},
	{"SenderGivesUp", TestSenderGivesUp},
	{"LeaderOfALineGivesUp", TestLeaderOfALineGivesUp},
	{"SendsOfTwoEngines", TestSendsOfTwoEngines},
	{"SignalsAreReceivedInOrder", TestSignalsAreReceivedInOrder},
	{"SignalIDsAreAcceptedOnce", TestSignalIDsAreAcceptedOnce},
	{"SignalIDsAtTheDoor", TestSignalIDsAtTheDoor},
	{"SendOfUnknownOutcome", TestSendOfUnknownOutcome},
	{"SignalBehindManyOthers", TestSignalBehindManyOthers},
	{"StartIsIdempotent", TestStartIsIdempotent},
	{"ConcurrentStartsOfOneID", TestConcurrentStartsOfOneID},
	{"MintedIDs", TestMintedIDs},
	{"IDsAtTheDoor", TestIDsAtTheDoor},
	{"InputsAtTheDoor", TestInputsAtTheDoor},
	{"EncryptingCodec", TestEncryptingCodec},
	{"WorkflowSentinels", TestWorkflowSentinels},
	{"Engines", TestEngines},
	{"ZombieIsFenced", TestZombieIsFenced},
	{"TakeoverIsSpread", TestTakeoverIsSpread},
	{"RollingDeploy", TestRollingDeploy},
	{"ActivationsRaceWithStarts", TestActivationsRaceWithStarts},
	{"NoActiveDeployment", TestNoActiveDeployment},
	{"Activate", TestActivate},
	{"ActivationOfUnknownOutcome", TestActivationOfUnknownOutcome},
	{"StartThatAnActivationOvertakes", TestStartThatAnActivationOvertakes},
	{"ClaimThatAnActivationOvertakes", TestClaimThatAnActivationOvertakes},
	{"ChildrenOfPinnedRuns", TestChildrenOfPinnedRuns},
	{"RetryOfAPinnedRun", TestRetryOfAPinnedRun},
	{"DeploymentsOfASingleOwner", TestDeploymentsOfASingleOwner},
	{"PinnedRunsInAQueue", TestPinnedRunsInAQueue},
	{"RunsOfOthersCostNothing", TestRunsOfOthersCostNothing},
	{"QueueRate", TestQueueRate},
	{"SlotSurvivesItsEngine", TestSlotSurvivesItsEngine},
	{"LineGoesPastAnUnknownType", TestLineGoesPastAnUnknownType},
	{"SignalInLine", TestSignalInLine},
	{"SendWithStartInAQueue", TestSendWithStartInAQueue},
	{"QueueLimitsHold", queueLimitsHold},
	{"CallsWithOnePointer", TestCallsWithOnePointer},
	{"KeyAndContentAreOfOneMoment", TestKeyAndContentAreOfOneMoment},
	{"AttemptThatChangesItsInput", TestAttemptThatChangesItsInput},
	{"BranchChangesWhatAnotherHasSent", TestBranchChangesWhatAnotherHasSent},
	{"InputThatCannotBeCopied", TestInputThatCannotBeCopied},
	{"PayloadWithoutItsAcceptance", TestPayloadWithoutItsAcceptance},
	{"PayloadWithoutItsAcceptanceOfARun", TestPayloadWithoutItsAcceptanceOfARun},
	{"AnotherInputIsTold", TestAnotherInputIsTold},
	{"StoreOfANewerReleaseIsRefused", TestStoreOfANewerReleaseIsRefused},
	{"StoreIsOutgrownUnderALivingEngine", TestStoreIsOutgrownUnderALivingEngine},
	{"CallOfUnknownOutcomeOutlastsAnOutage", TestCallOfUnknownOutcomeOutlastsAnOutage},
	{"ContextOfALeaderIsNotThatOfTheOthers", TestContextOfALeaderIsNotThatOfTheOthers},
	{"ErrorOfAWaitTellsItsCause", TestErrorOfAWaitTellsItsCause},
}

var slowOnPostgres = []repeated{
	{"SignalThatLandsAfterItsSenderGaveUp", TestSignalThatLandsAfterItsSenderGaveUp},
	{"QueueNamesAtTheDoor", TestQueueNamesAtTheDoor},
	{"CancelInLine", TestCancelInLine},
	{"QueueBoundsRuns", TestQueueBoundsRuns},
	{"CompensateOfAnotherResult", TestCompensateOfAnotherResult},
	{"CompensateFails", TestCompensateFails},
	{"SameAnswerAboutACompensation", TestSameAnswerAboutACompensation},
	{"SameAnswerAboutAnEffect", TestSameAnswerAboutAnEffect},
	{"SameRetryOfWhatIsHeldNoMore", TestSameRetryOfWhatIsHeldNoMore},
	{"SameClearOfASignal", TestSameClearOfASignal},
	{"CompensateOfWhatAPersonToldLast", TestCompensateOfWhatAPersonToldLast},
	{"AnswersAboutACompensation", TestAnswersAboutACompensation},
	{"OnlyWhoServesAQueueDrivesItsRuns", TestOnlyWhoServesAQueueDrivesItsRuns},
	{"RetryInLine", TestRetryInLine},
	{"QueueOfASingleOwner", TestQueueOfASingleOwner},
	{"Retries", TestRetries},
	{"AttemptThatNeverReturns", TestAttemptThatNeverReturns},
	{"DeafAttemptNeedsAPerson", TestDeafAttemptNeedsAPerson},
	{"RetriedParent", TestRetriedParent},
	{"RetriesSurviveARestart", TestRetriesSurviveARestart},
	{"Timeout", TestTimeout},
	{"ReplayTakesTurnsAsBefore", TestReplayTakesTurnsAsBefore},
	{"MapIsCancelled", TestMapIsCancelled},
	{"ActivityFailuresAreContained", TestActivityFailuresAreContained},
	{"RunAndCloseInAnyOrder", TestRunAndCloseInAnyOrder},
	{"ParkedRunsComeBack", TestParkedRunsComeBack},
	{"StartUpLeavesTheParked", TestStartUpLeavesTheParked},
	{"Room", TestRoom},
	{"WaitingRunsMakeRoom", TestWaitingRunsMakeRoom},
	{"RunThatIsPutDown", TestRunThatIsPutDown},
	{"TwoEnginesOnOneHandle", TestTwoEnginesOnOneHandle},
	{"DamagedRecordsOfOneRun", TestDamagedRecordsOfOneRun},
	{"OwnershipSingleOwner", TestSingleOwner},
	{"ResultAtTheMomentOfTheEnd", TestResultAtTheMomentOfTheEnd},
	{"NonDeterminismHoldsTheRun", TestNonDeterminismHoldsTheRun},
	{"Purge", TestPurge},
	{"SignalRacesWithOtherEvents", TestSignalRacesWithOtherEvents},
	{"TimeLimit", TestTimeLimit},
	{"ReceiveWithin", TestReceiveWithin},
	{"PinnedRunStaysOnItsDeployment", TestPinnedRunStaysOnItsDeployment},
	{"DamagedActiveDeployment", TestDamagedActiveDeployment},
	{"ChildOfAPinnedRunWaitsForRoom", TestChildOfAPinnedRunWaitsForRoom},
	{"RunThatIsOlderThanItsPin", TestRunThatIsOlderThanItsPin},
	{"WhatIdentifiesAnOperation", TestWhatIdentifiesAnOperation},
}
