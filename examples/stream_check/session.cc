#include "session.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

namespace stream_check {
namespace {

constexpr int kBatch = 32;
constexpr double kGraceSeconds = 5;    // for what the peer's kDone promises
constexpr double kStuckSeconds = 30;   // for own requests after a stop, without any completion
constexpr double kStallSeconds = 120;  // during the run, without any completion
constexpr double kEventSeconds = 3;    // on an armed CQ, before it is looked at without an event
constexpr int kTickMs = 5;
constexpr int kEmptyPollsBeforeYield = 64;

}  // namespace

Session::Session(const Options& options, const volatile std::sig_atomic_t* signals)
    : options_(options), signals_(signals), series_(std::in_place, options.series) {}

void Session::agree() {
  Hello hello;
  if (options_.host.empty()) {
    hello = peer_->wait(RecordType::kHello).as<Hello>();
    std::string refusal;
    if (hello.version != kProtocolVersion) {
      refusal = "version " + std::to_string(hello.version) + ", the server has " +
                std::to_string(kProtocolVersion) + "; use the same stream_check on both sides";
    } else if (hello.qps == 0 || hello.qps > kMaxQps || hello.max_length < kMinLength ||
               hello.max_length > kMaxMaxLength || hello.rate > kMaxRate || hello.idle > kMaxQps) {
      refusal = "qps, size or rate out of range";
    } else if ((hello.apart != 0) != options_.apart || (options_.apart && hello.messages == 0)) {
      refusal = "--apart is for both sides, or for none";
    }
    if (!refusal.empty()) {
      peer_->send(RecordType::kRefused, refusal.data(), refusal.size());
      throw Failure("refused a client: " + refusal);
    }
    options_.qps = hello.qps;
    options_.max_length = hello.max_length;
    options_.messages = hello.messages;
    options_.rate = hello.rate;
    options_.idle = hello.idle;
    for (size_t op = 0; op < kOps; ++op) options_.ops[op] = hello.ops >> op & 1;
  } else {
    hello.session = std::random_device()();
    hello.qps = options_.qps;
    hello.max_length = options_.max_length;
    hello.messages = options_.messages;
    hello.rate = options_.rate;
    hello.idle = options_.idle;
    hello.apart = options_.apart;
    for (size_t op = 0; op < kOps; ++op) hello.ops |= uint32_t{options_.ops[op]} << op;
    peer_->send(RecordType::kHello, &hello, sizeof hello);
  }
  session_ = hello.session;
}

void Session::set_up() {
  device_.emplace(options_);  // what fails without a peer fails first
  const bool server = options_.host.empty();
  peer_.emplace(server ? SideChannel::listen(options_.port)
                       : SideChannel::connect(options_.host, options_.port));
  agree();
  try {
    device_->create_completion_queue(options_.qps * (kSendDepth + kReceiveDepth));
    for (uint32_t qp = 0; qp < options_.qps; ++qp) {
      Stream::Plan plan;
      plan.to = {session_, static_cast<uint16_t>(qp), static_cast<uint8_t>(server)};
      plan.from = {session_, static_cast<uint16_t>(qp), static_cast<uint8_t>(!server)};
      plan.max_length = options_.max_length;
      plan.messages = options_.messages;
      plan.ops = options_.ops;
      plan.timeout = options_.timeout;
      streams_.push_back(
          std::make_unique<Stream>(&*device_, plan, &message_faults_, &request_faults_));
    }
    if (options_.idle > 0) idle_.emplace(*device_, options_.qps, options_.idle);
    const Endpoint& local = device_->endpoint();
    std::vector<QpEndpoint> qps;
    for (const auto& stream : streams_) qps.push_back(stream->endpoint());
    if (idle_) qps.insert(qps.end(), idle_->endpoints().begin(), idle_->endpoints().end());
    std::vector<uint8_t> body(sizeof local + qps.size() * sizeof(QpEndpoint));
    std::memcpy(body.data(), &local, sizeof local);
    std::memcpy(body.data() + sizeof local, qps.data(), qps.size() * sizeof(QpEndpoint));
    peer_->send(RecordType::kEndpoint, body.data(), body.size());
    const Record theirs = peer_->wait(RecordType::kEndpoint);
    const auto remote = theirs.as<Endpoint>();
    mtu_ = std::min(local.mtu, remote.mtu);
    for (size_t qp = 0; qp < qps.size(); ++qp) {
      qps[qp] = theirs.as<QpEndpoint>(sizeof remote + qp * sizeof(QpEndpoint));
    }
    for (size_t qp = 0; qp < streams_.size(); ++qp) streams_[qp]->connect(local, remote, qps[qp]);
    qps.erase(qps.begin(), qps.begin() + static_cast<std::ptrdiff_t>(streams_.size()));
    if (idle_) idle_->connect(local, remote, qps, options_.timeout);
  } catch (const Failure& failure) {
    const std::string reason = failure.what();
    peer_->send(RecordType::kRefused, reason.data(), reason.size());
    throw;
  }
  peer_->send(RecordType::kReady);
  peer_->wait(RecordType::kReady);
  if (!options_.apart) return;
  peer_->part();
  std::array<uint64_t, kOps> all{};
  for (size_t op = 0; op < kOps; ++op) all[op] = options_.ops[op] ? options_.messages : 0;
  peer_sent_.assign(options_.qps, all);
}

void Session::stay() const {
  while (options_.apart && *signals_ == 0) poll(nullptr, 0, 100);
}

Outcome Session::run() {
  int empty_polls = 0;
  int64_t next_tick = 0;
  time_.tick(monotonic_ns());
  while (!verdict_sent_) {
    size_t seen = 0;
    if (device_->channel() == nullptr) {
      seen = poll_completions();
    } else if (!armed_) {
      seen = poll_completions();
      if (seen == 0) {
        // Whatever came before the request to notify would cause no event: so look once more.
        if (ibv_req_notify_cq(device_->cq(), 0) != 0) call_error("ibv_req_notify_cq failed");
        armed_ = true;
        armed_at_ = time_.seconds();
        seen = poll_completions();
      }
    }
    for (const auto& stream : streams_) stream->post(stopping_, budget());
    empty_polls = seen == 0 ? empty_polls + 1 : 0;
    if (seen == 0 && armed_) wait_for_event();
    if (empty_polls >= kEmptyPollsBeforeYield && !armed_) rest();

    const int64_t now = monotonic_ns();
    if (now >= next_tick || now < next_tick - 2 * kTickMs * 1'000'000) {
      next_tick = now + kTickMs * 1'000'000;
      housekeeping(now);
    }
  }
  if (!outcome_.compared && !peer_->closed()) {
    // The peer's own waits are bounded, but it may be frozen: only a signal ends this one.
    while (!outcome_.compared && !peer_->closed() && *signals_ < 2) {
      pollfd p{peer_->fd(), POLLIN, 0};
      poll(&p, 1, 100);
      while (auto record = peer_->receive()) handle(*record);
    }
  }
  if (!outcome_.compared) call_error("the peer ended without a verdict");
  return outcome_;
}

uint64_t Session::budget() const {
  if (options_.rate == 0) return std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(time_.seconds() * options_.rate);
}

// Between two polls in vain. With a rate nothing will come soon: there is time to sleep.
void Session::rest() {
  if (options_.rate == 0) {
    sched_yield();
  } else {
    poll(nullptr, 0, 1);
  }
}

size_t Session::poll_completions() {
  ibv_wc wc[kBatch];
  const int count = ibv_poll_cq(device_->cq(), kBatch, wc);
  if (count < 0) {
    call_error("ibv_poll_cq failed");
    return 0;
  }
  if (count == 0) return 0;
  const int64_t realtime = realtime_ns();
  gaps_.completion(monotonic_ns(), realtime);
  last_completion_at_ = time_.seconds();
  uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    const uint16_t qp = WorkId::unpack(wc[i].wr_id).qp;
    if (qp >= streams_.size()) {
      ++request_faults_.completion_faults;
      request_faults_.log.add("a completion with an unknown wr_id came");
      continue;
    }
    bytes += streams_[qp]->complete(wc[i]);
  }
  outcome_.completions += static_cast<uint64_t>(count);
  bytes_seen_ += bytes;
  series_->add(realtime, static_cast<uint64_t>(count), bytes);
  return static_cast<size_t>(count);
}

void Session::wait_for_event() {
  pollfd fds[] = {{device_->channel()->fd, POLLIN, 0},
                  {peer_->fd(), static_cast<short>(peer_->closed() ? 0 : POLLIN), 0}};
  poll(fds, peer_->closed() ? 1 : 2, kTickMs);
  const auto take = [this] {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(device_->channel(), &cq, &context) != 0) return false;
    ibv_ack_cq_events(cq, 1);
    armed_ = false;
    return true;
  };
  if ((fds[0].revents & POLLIN) != 0 && take()) return;
  if (time_.seconds() - armed_at_ < kEventSeconds) return;
  // Nothing but an event makes this loop look at the CQ, so a lost event would hang it.
  armed_at_ = time_.seconds();
  if (poll_completions() == 0) return;
  poll(fds, 1, 200);
  if (take()) return;
  armed_ = false;
  ++request_faults_.completion_faults;
  request_faults_.log.add("completions waited in the CQ, but no event came");
}

void Session::housekeeping(int64_t now_ns) {
  time_.tick(now_ns);
  series_->add(realtime_ns(), 0, 0);
  while (auto record = peer_->receive()) handle(*record);
  look_at_async_events();
  if (idle_) look_at_idle_qps();

  const double now = time_.seconds();
  const bool client = !options_.host.empty();
  if (*signals_ > 0) stop("signal");
  if (client && options_.messages == 0 && options_.seconds > 0 && now >= options_.seconds) {
    stop("time");
  }
  if (!stopping_ && now - last_completion_at_ > kStallSeconds) {
    call_error("no completion came for 120 s");
  }
  if (request_faults_.error_completions + request_faults_.call_errors != 0) stop("error");
  if (peer_->closed() && peer_sent_.empty()) {
    if (!stopping_) call_error("the peer closed its TCP connection during the run");
    stop("error");
  }
  if (options_.progress && now >= next_progress_) print_progress();

  const bool failed = std::any_of(streams_.begin(), streams_.end(),
                                  [](const auto& stream) { return stream->failed(); });
  const bool messages_over = options_.messages != 0 && !stopping_ && all_done();
  if (messages_over) {
    outcome_.ended_by = "messages";
    outcome_.seconds = now;
    gaps_.stop();
  }
  const bool stuck = stopping_ && !failed && !all_done() &&
                     now - std::max(stopped_at_, last_completion_at_) > kStuckSeconds;
  if (stuck && !done_sent_) call_error("requests did not complete within 30 s after the stop");
  if (!done_sent_ && (all_done() || stuck || failed || *signals_ > 1 ||
                      (stopping_ && peer_->closed() && !options_.apart))) {
    send_done();
  }
  if (done_sent_ && !verdict_sent_) {
    // Apart, the peer may have much to send still.
    const double grace = options_.apart && !stopping_ ? kStallSeconds : kGraceSeconds;
    const bool waited =
        !peer_sent_.empty() && now - std::max(peer_done_at_, last_completion_at_) > grace;
    if ((!peer_sent_.empty() && (all_complete() || waited)) ||
        (peer_->closed() && !options_.apart) || *signals_ > 1) {
      send_verdict();
    }
  }
}

void Session::handle(const Record& record) {
  switch (record.type) {
    case RecordType::kStop: stop("peer"); return;
    case RecordType::kDone:
      peer_done_at_ = time_.seconds();
      for (size_t qp = 0; qp < streams_.size(); ++qp) {
        using Sent = std::array<uint64_t, kOps>;
        peer_sent_.push_back(record.as<Sent>(qp * sizeof(Sent)));
      }
      return;
    case RecordType::kVerdict:
      for (size_t i = 0; i < streams_.size() * kOps; ++i) {
        outcome_.there[i % kOps] += record.as<Counts>(i * sizeof(Counts));
      }
      outcome_.compared = true;
      return;
    default: throw Failure("the peer sent an unexpected record; use the same version");
  }
}

void Session::look_at_async_events() {
  ibv_async_event event{};
  pollfd p{device_->context()->async_fd, POLLIN, 0};
  if (poll(&p, 1, 0) <= 0 || ibv_get_async_event(device_->context(), &event) != 0) return;
  ibv_ack_async_event(&event);
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      call_error(std::string("asynchronous event: ") + ibv_event_type_str(event.event_type));
      return;
    default: return;  // communication established, port and GID changes
  }
}

void Session::look_at_idle_qps() {
  const bool streams_are_done = std::all_of(streams_.begin(), streams_.end(),
                                            [](const auto& stream) { return stream->done(); });
  if (streams_are_done) idle_->send_last();
  if (const std::string wrong = idle_->look(); !wrong.empty()) call_error(wrong);
}

void Session::stop(const char* reason) {
  if (stopping_) return;
  stopping_ = true;
  gaps_.stop();
  stopped_at_ = time_.seconds();
  if (outcome_.ended_by.empty()) {
    outcome_.ended_by = reason;
    outcome_.seconds = stopped_at_;
  }
  peer_->send(RecordType::kStop);
}

void Session::call_error(const std::string& text) {
  ++request_faults_.call_errors;
  request_faults_.log.add(text);
}

bool Session::all_done() const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream->done(); }) &&
         (!idle_ || idle_->is_sent());
}

bool Session::all_complete() const {
  for (size_t qp = 0; qp < streams_.size(); ++qp) {
    if (!streams_[qp]->complete(peer_sent_[qp])) return false;
  }
  return !idle_ || idle_->is_complete();
}

void Session::send_done() {
  std::vector<std::array<uint64_t, kOps>> sent;
  for (const auto& stream : streams_) sent.push_back(stream->sent());
  done_sent_ = true;
  peer_->send(RecordType::kDone, sent.data(), sent.size() * sizeof sent[0]);
}

void Session::send_verdict() {
  judge();
  std::vector<Counts> verdict;
  for (const auto& stream : streams_) {
    for (size_t op = 0; op < kOps; ++op) {
      verdict.push_back(stream->receiver().counts(static_cast<Op>(op)));
    }
  }
  verdict_sent_ = true;
  outcome_.compared |= options_.apart;
  peer_->send(RecordType::kVerdict, verdict.data(), verdict.size() * sizeof verdict[0]);
}

void Session::judge() {
  if (idle_ && !idle_->is_complete())
    call_error(std::to_string(idle_->missing()) + " idle QPs got no message");
  for (size_t qp = 0; qp < streams_.size(); ++qp) {
    Stream& stream = *streams_[qp];
    // Without the peer's counts only gaps are known to be lost; not comparing is a fault itself.
    std::array<uint64_t, kOps> sent{};
    for (size_t op = 0; op < kOps; ++op) {
      sent[op] =
          peer_sent_.empty() ? stream.receiver().next(static_cast<Op>(op)) : peer_sent_[qp][op];
    }
    stream.finish(sent);
    outcome_.bytes_sent += stream.bytes_sent();
    for (size_t op = 0; op < kOps; ++op) {
      outcome_.sent[op] += stream.sent()[op];
      outcome_.here[op] += stream.receiver().counts(static_cast<Op>(op));
    }
  }
}

void Session::print_progress() {
  uint64_t missing = 0;
  Counts all;
  for (const auto& stream : streams_) {
    for (size_t op = 0; op < kOps; ++op) {
      all += stream->receiver().counts(static_cast<Op>(op));
      missing += stream->receiver().missing(static_cast<Op>(op));
    }
  }
  const double span = time_.seconds() - next_progress_ + 1;
  std::fprintf(
      stderr,
      "%6.0f s  %9.0f completions/s  %8.1f MB/s  missing %llu doubled %llu disordered "
      "%llu corrupted %llu errors %llu  largest gap %.1f ms\n",
      time_.seconds(), static_cast<double>(outcome_.completions - progress_completions_) / span,
      static_cast<double>(bytes_seen_ - progress_bytes_) / span / 1e6,
      static_cast<unsigned long long>(missing), static_cast<unsigned long long>(all.duplicated),
      static_cast<unsigned long long>(all.out_of_order),
      static_cast<unsigned long long>(all.corrupted),
      static_cast<unsigned long long>(request_faults_.total()),
      static_cast<double>(gaps_.largest_ns()) / 1e6);
  progress_completions_ = outcome_.completions;
  progress_bytes_ = bytes_seen_;
  next_progress_ = time_.seconds() + 1;
}

}  // namespace stream_check
