#include "host/move/settle.h"

#include <fmt/core.h>

#include <thread>

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/peers/kept_peers.h"
#include "host/peers/peer.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kAnswerLimit{10};
constexpr std::chrono::milliseconds kPause{100};  // between questions
constexpr std::chrono::seconds kHearing{5};       // between calls of `is_needed`

}  // namespace

// Only the codes that the other side chooses are answers; all others may come from the way there.

Answer ask_to_commit(Peer& destination, std::uint64_t move_id, std::string* reason) {
  v1::CommitRequest request;
  v1::CommitReply reply;
  request.set_move_id(move_id);
  const auto status = destination.try_call(request, &reply, kAnswerLimit);
  if (status.ok()) return Answer::kCommitted;
  *reason = one_line(status.error_message());
  return status.error_code() == grpc::ABORTED ? Answer::kAborted : Answer::kUnknown;
}

Answer ask_to_abort(Peer& destination, std::uint64_t move_id, std::string* reason) {
  v1::AbortRequest request;
  v1::AbortReply reply;
  request.set_move_id(move_id);
  const auto status = destination.try_call(request, &reply, kAnswerLimit);
  if (status.ok()) return Answer::kAborted;
  *reason = one_line(status.error_message());
  return status.error_code() == grpc::ALREADY_EXISTS ? Answer::kCommitted : Answer::kUnknown;
}

std::string is_committed_there(const std::string& programs, const std::string& there) {
  return fmt::format("{} has committed the move of {}, and goes on with it; see: ferry ps, there",
                     there, programs);
}

Answer ask_decision(KeptPeers& peers, const std::string& ferryd, const std::string& host,
                    std::uint64_t move_id, std::chrono::milliseconds timeout) {
  const auto source = peers.get(ferryd, host);
  v1::DecisionRequest request;
  v1::DecisionReply reply;
  request.set_move_id(move_id);
  try {
    source->call(request, &reply, timeout);
  } catch (const Failure&) {
    peers.drop(source);
    throw;
  }
  switch (reply.decision()) {
    case v1::DecisionReply::COMMITTED: return Answer::kCommitted;
    case v1::DecisionReply::ABORTED: return Answer::kAborted;
    default: return Answer::kUnknown;
  }
}

void need_source(const std::string& source, const std::string& from) {
  if (source == from) return;
  throw Failure(fmt::format("refused: this is a move of {}, not of {}", source, from));
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

bool hear(Peer& destination, std::uint64_t move_id,
          const std::function<void(const v1::WatchEvent&)>& handle,
          const std::function<bool()>& is_needed) {
  while (is_needed()) {
    const auto status = destination.watch(move_id, handle, kHearing);
    // A ferryd whose journal does not know the move has nothing of it any more.
    if (status.ok() || status.error_code() == grpc::NOT_FOUND) return true;
    if (status.error_code() != grpc::DEADLINE_EXCEEDED) std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace ferry::host
