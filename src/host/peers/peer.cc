#include "host/peers/peer.h"

#include <fmt/core.h>
#include <grpcpp/grpcpp.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "base/failure.h"
#include "base/net.h"
#include "ferry.grpc.pb.h"
#include "host/peers/api.h"
#include "host/peers/credentials.h"
#include "host/peers/peer_record.h"
#include "host/peers/stream.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using Stub = v1::Ferryd::Stub;

constexpr int kLooks = 4;  // at a ferryd that has broken off
constexpr milliseconds kBetweenLooks{100};
constexpr milliseconds kLookLimit{1000};  // a program may stand still meanwhile

template <typename Request, typename Reply>
using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

// Told apart by the types of their requests.
constexpr std::tuple kMethods{&Stub::Claim,    &Stub::Unclaim,  &Stub::Take,       &Stub::Locate,
                              &Stub::Listener, &Stub::Check,    &Stub::Prepare,    &Stub::Bind,
                              &Stub::Restore,  &Stub::Commit,   &Stub::Abort,      &Stub::Decision,
                              &Stub::Probe,    &Stub::Letters,  &Stub::MovedNames, &Stub::Attest,
                              &Stub::Find,     &Stub::Restarted};

using Begin = class Stub::async;
template <typename Step, typename Reply>
using StepsOf = void (Begin::*)(grpc::ClientContext*, grpc::ClientBidiReactor<Step, Reply>*);

constexpr std::tuple<StepsOf<v1::CutStep, v1::CutReply>,
                     StepsOf<v1::RestartStep, v1::RestartStepReply>,
                     StepsOf<v1::MovePartStep, v1::MovePartReply>>
    kConversations{&Begin::Cut, &Begin::RestartPart, &Begin::MovePart};

}  // namespace

struct Peer::Calls {
  std::unique_ptr<Stub> stub;
};

Peer::Peer(const std::string& host, const Credentials* credentials, const std::string& identity)
    : name_(host), credentials_(credentials) {
  const auto [bare, port] = split_host_port(host, kFerrydPort);
  identity_ = identity.empty() ? bare : identity;
  port_ = port;
  address_ = resolve(bare);
  target_ = join_host_port(address_, port);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A shared pool would make this move wait out the back-off of an earlier one that found nobody.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // While a call is under way.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kHostSilence.count() / 5);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kHostSilence.count() - kHostSilence.count() / 5);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // as many as that takes
  arguments.SetMaxReceiveMessageSize(kLargestMessage);
  if (credentials != nullptr) arguments.SetSslTargetNameOverride(identity_);
  calls_ = std::make_unique<Calls>(v1::Ferryd::NewStub(grpc::CreateCustomChannel(
      target_, credentials != nullptr ? credentials->channel() : grpc::InsecureChannelCredentials(),
      arguments)));
}

Peer::~Peer() = default;

Peer Peer::recorded(const std::string& record, const Credentials* credentials) {
  const auto [address, name] = parse_peer(record);
  return {address, credentials, name};
}

template <typename Request, typename Reply>
grpc::Status Peer::try_call(const Request& request, Reply* reply, milliseconds timeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  return ((*calls_->stub).*std::get<Method<Request, Reply>>(kMethods))(&context, request, reply);
}

template grpc::Status Peer::try_call(const v1::ClaimRequest&, v1::ClaimReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::UnclaimRequest&, v1::UnclaimReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::TakeRequest&, v1::TakeReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::LocateRequest&, v1::LocateReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::ListenerRequest&, v1::ListenerReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::LettersRequest&, v1::LettersReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::MovedNamesRequest&, v1::MovedNamesReply*,
                                     milliseconds);
template grpc::Status Peer::try_call(const v1::AttestRequest&, v1::AttestReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::CheckRequest&, v1::CheckReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::PrepareRequest&, v1::PrepareReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::BindRequest&, v1::BindReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::RestoreRequest&, v1::RestoreReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::CommitRequest&, v1::CommitReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::AbortRequest&, v1::AbortReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::DecisionRequest&, v1::DecisionReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::ProbeRequest&, v1::ProbeReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::FindRequest&, v1::FindReply*, milliseconds);
template grpc::Status Peer::try_call(const v1::RestartedRequest&, v1::RestartedReply*,
                                     milliseconds);

// gRPC's threads, a few for all conversations, write the steps and read the replies, one ahead of whoever takes them.
template <typename Step, typename Reply>
class Peer::Talk final : public Conversation<Step, Reply>,
                         private grpc::ClientBidiReactor<Step, Reply> {
 public:
  Talk(const Peer& peer, StepsOf<Step, Reply> begin) : peer_(peer) {
    (peer.calls_->stub->async()->*begin)(&context_, this);
    this->AddHold();  // until nothing is read any more
    read();
    this->StartCall();
  }
  ~Talk() override {
    context_.TryCancel();
    std::unique_lock lock(mutex_);
    if (!is_reading_) let_go();
    changed_.wait(lock, [this] { return is_done_; });
  }
  void cancel() override { context_.TryCancel(); }
  void send(const Step& step) override {
    std::lock_guard lock(mutex_);
    if (is_let_go_) return;
    steps_.push_back(step);
    if (steps_.size() == 1) this->StartWrite(&steps_.front());
  }
  Failure why_ended() override {
    std::unique_lock lock(mutex_);
    const auto status = status_;
    lock.unlock();
    if (!status.ok()) return peer_.failure_of(status);
    return Failure(
        fmt::format("the ferryd of {} ({}) broke off; see its log", peer_.name_, peer_.target_));
  }

 private:
  void read() {
    is_reading_ = true;
    reply_ = std::make_unique<Reply>();
    this->StartRead(reply_.get());
  }
  void let_go() {
    if (!std::exchange(is_let_go_, true)) this->RemoveHold();
  }
  void want_next() override {
    std::lock_guard lock(mutex_);
    if (!is_let_go_) read();
  }
  void OnReadDone(bool is_there) override {
    std::unique_lock lock(mutex_);
    is_reading_ = false;
    if (!is_there) return let_go();
    const auto reply = std::move(reply_);
    lock.unlock();
    this->arrived(std::move(*reply));
  }
  void OnWriteDone(bool is_written) override {
    std::lock_guard lock(mutex_);
    steps_.pop_front();
    if (is_written && !steps_.empty()) this->StartWrite(&steps_.front());
  }
  void OnDone(const grpc::Status& status) override {
    {
      std::lock_guard lock(mutex_);
      status_ = status;
    }
    this->ended();
    std::lock_guard lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  }

  const Peer& peer_;
  grpc::ClientContext context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Step> steps_;  // the first one is being written
  std::unique_ptr<Reply> reply_;
  bool is_reading_ = false, is_let_go_ = false, is_done_ = false;
  grpc::Status status_;
};

template <typename Step, typename Reply>
std::unique_ptr<Conversation<Step, Reply>> Peer::converse() {
  return std::make_unique<Talk<Step, Reply>>(*this, std::get<StepsOf<Step, Reply>>(kConversations));
}

template std::unique_ptr<Conversation<v1::CutStep, v1::CutReply>> Peer::converse();
template std::unique_ptr<Conversation<v1::RestartStep, v1::RestartStepReply>> Peer::converse();
template std::unique_ptr<Conversation<v1::MovePartStep, v1::MovePartReply>> Peer::converse();

grpc::Status Peer::watch(std::uint64_t move_id,
                         const std::function<void(const v1::WatchEvent&)>& handle,
                         milliseconds timeout) {
  v1::WatchRequest request;
  request.set_move_id(move_id);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const auto reader = calls_->stub->Watch(&context, request);
  v1::WatchEvent event;
  while (reader->Read(&event)) handle(event);
  return reader->Finish();
}

// gRPC gives the same error for a ferryd that is not there, for one that this host refuses, and for
// one that refuses this host: the handshake once more, step by step, tells them apart.
std::string Peer::why_unavailable() const {
  std::string reason;
  for (int look = 0; look < kLooks; ++look) {
    // A ferryd that is being killed still accepts and closes at once, as one that refuses does: but
    // it is gone at the next look.
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    int error = 0;
    UniqueFd socket = try_connect_tcp(address_, port_, kLookLimit, &error);
    if (!socket && error == ECONNREFUSED) {
      return fmt::format("there is no ferryd on {} ({}); start it there", name_, target_);
    }
    if (!socket) {
      return fmt::format(
          "{} ({}) does not answer; look whether it runs, and whether the network leads there",
          name_, target_);
    }
    if (credentials_ == nullptr) {
      reason = fmt::format(
          "the ferryd of {} ({}) takes no calls without certificates, or has just ended", name_,
          target_);
    } else {
      reason = why_broken_off(std::move(socket));
    }
  }
  return reason;
}

std::string Peer::why_broken_off(UniqueFd socket) const {
  try {
    Stream stream = Stream::to_server(std::move(socket), credentials_, identity_, "h2");
    // After the handshake the other side refuses this host's certificate, or sends HTTP/2's
    // settings.
    char first = 0;
    const int error = stream.receive(&first, sizeof first);
    // gRPC closes without an alert.
    if (error == EACCES || error == EPIPE || error == ECONNRESET) {
      return fmt::format(
          "{} refuses this host's certificate, of {}: it is of another CA, or has expired (join "
          "both "
          "to one: ferry host add), or the clock of {} is more than a day behind",
          name_, credentials_->identity().name, name_);
    }
  } catch (const Failure& failure) {
    return failure.what();
  }
  return fmt::format("the ferryd of {} ({}) broke off; see its log", name_, target_);
}

Failure Peer::failure_of(const grpc::Status& status) const {
  switch (status.error_code()) {
    case grpc::UNAVAILABLE: return Failure(why_unavailable());
    case grpc::DEADLINE_EXCEEDED:
      return Failure(fmt::format("the ferryd of {} ({}) does not answer", name_, target_));
    case grpc::UNIMPLEMENTED:
      return Failure(fmt::format(
          "the ferryd of {} ({}) is of another version; install the same on both", name_, target_));
    default: return Failure(fmt::format("{}: {}", name_, one_line(status.error_message())));
  }
}

}  // namespace ferry::host
