#include "migrate/settle.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <thread>

#include "migrate/failure.h"

namespace ferry::migrate {
namespace {

constexpr std::chrono::seconds kAnswerLimit{10};
constexpr std::chrono::milliseconds kPause{100};  // between questions

}  // namespace

// Only the codes that the other side chooses bind; all others may come from the way there.

Answer ask_to_commit(Peer& destination, std::uint64_t move_id, std::string* reason) {
  v1::CommitRequest request;
  v1::CommitReply reply;
  request.set_move_id(move_id);
  const auto status =
      destination.try_call(&v1::Ferryd::Stub::Commit, request, &reply, kAnswerLimit);
  if (status.ok()) return Answer::kCommitted;
  *reason = one_line(status.error_message());
  return status.error_code() == grpc::ABORTED ? Answer::kAborted : Answer::kUnknown;
}

Answer ask_to_abort(Peer& destination, std::uint64_t move_id, std::string* reason) {
  v1::AbortRequest request;
  v1::AbortReply reply;
  request.set_move_id(move_id);
  const auto status = destination.try_call(&v1::Ferryd::Stub::Abort, request, &reply, kAnswerLimit);
  if (status.ok()) return Answer::kAborted;
  *reason = one_line(status.error_message());
  return status.error_code() == grpc::ALREADY_EXISTS ? Answer::kCommitted : Answer::kUnknown;
}

grpc::Status commit_status(Answer answer, const std::string& reason) {
  switch (answer) {
    case Answer::kCommitted: return grpc::Status::OK;
    case Answer::kAborted: return {grpc::ABORTED, reason};
    default: return {grpc::UNAVAILABLE, "it is not decided yet"};
  }
}

grpc::Status abort_status(Answer answer) {
  switch (answer) {
    case Answer::kAborted: return grpc::Status::OK;
    case Answer::kCommitted: return {grpc::ALREADY_EXISTS, "the move is committed"};
    default: return {grpc::UNAVAILABLE, "it is not decided yet"};
  }
}

Answer settle_source(Host& host, std::uint64_t move_id) {
  auto record = host.decisions->find(move_id, Side::kSource);
  auto decision =
      SourceDecision::recovered(record ? std::optional(record->decision) : std::nullopt);
  while (!decision.decided()) {
    if (host.stopping) return Answer::kUnknown;
    std::string reason;
    Answer answer = Answer::kUnknown;
    try {
      Peer destination = Peer::recorded(record->peer, host.credentials);
      answer = ask_to_commit(destination, move_id, &reason);
    } catch (const Failure& failure) {
      reason = failure.what();
    }
    record = host.decisions->find(move_id, Side::kSource);
    if (record->decision == Decision::kAborted) decision.operator_aborts();
    decision.answered(answer);
    if (decision.decided()) {
      const Decision outcome = decision.committed() ? Decision::kConfirmed : Decision::kAborted;
      report_failure([&] {
        host.decisions->record(Side::kSource, {outcome, record->program, "", record->moves});
      });
      break;
    }
    spdlog::warn("'{}' stays frozen until {} says how its move was decided: {}", record->program,
                 record->peer, reason);
    std::this_thread::sleep_for(kPause);
  }
  return decision.answer();
}

}  // namespace ferry::migrate
