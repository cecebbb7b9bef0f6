#pragma once

// The messages of ferry.proto by name, for headers: code that uses their fields includes
// ferry.pb.h, which is long.
namespace ferry::v1 {

class AttestReply;
class AttestRequest;
class CancelRequest;
class CheckReply;
class CheckRequest;
class CheckpointProgress;
class CheckpointReport;
class CheckpointRequest;
class ClaimReply;
class ClaimRequest;
class ContextSlots;
class CutReply;
class CutStep;
class DetachReply;
class DetachStep;
class Endpoint;
class FindReply;
class FindRequest;
class FoundProgram;
class GroupPlan;
class GroupReport;
class HistoryReply;
class HistoryRequest;
class KernelDevice;
class Letter;
class LettersReply;
class LettersRequest;
class Library;
class MovePartReply;
class MovePartStep;
class MovePlan;
class MoveProgress;
class MoveReport;
class MoveRequest;
class MovedNames;
class MovedNamesReply;
class MovedNamesRequest;
class PastMove;
class Place;
class PrepareReply;
class PrepareRequest;
class ProbeReply;
class ProbeRequest;
class ProcessSlots;
class Program;
class PsReply;
class QpName;
class RdmaCm;
class ReachReply;
class ReachRequest;
class Reached;
class Redirection;
class RestartReport;
class RestartRequest;
class RestartStep;
class RestartStepReply;
class RestartedPrograms;
class RestartedReply;
class RestartedRequest;
class StateReply;
class TakeRequest;
class UnclaimRequest;
class WaitEvent;
class WaitStep;
class WatchEvent;

}  // namespace ferry::v1
