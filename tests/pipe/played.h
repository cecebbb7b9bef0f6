#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "pipe/driver/driver.h"

namespace ferry::pipe {

inline SocketAddress address_of(std::uint8_t last, std::uint16_t port) {
  SocketAddress address;
  address.family = AF_INET;
  address.port = port;
  address.ip = {10, 0, 0, last};
  return address;
}

// A network namespace of which the test says what it has.
class PlayedNetwork : public NetworkNamespace {
 public:
  PlayedNetwork(std::uint64_t id, SocketAddress own, Domain domain)
      : id_(id), own_(own), domain_(domain) {
    add(own, domain);
  }
  void add(const SocketAddress& address, Domain domain) { addresses_[address.ip] = domain; }

  std::uint64_t id() const override { return id_; }
  bool has(const SocketAddress& address) override { return addresses_.contains(address.ip); }
  std::optional<std::vector<SocketAddress>> addresses() override {
    if (has_too_many) return std::nullopt;
    std::vector<SocketAddress> all;
    for (const auto& [ip, domain] : addresses_) all.push_back({AF_INET, 0, ip});
    return all;
  }
  std::optional<Domain> domain_of(const SocketAddress& address) override {
    ++questions;
    return has(address) ? std::optional(addresses_[address.ip]) : std::nullopt;
  }
  std::optional<Route> route_to(const SocketAddress& address) override {
    return Route{has(address), domain_, own_};
  }
  bool has_bound(int, const SocketAddress&) override { return is_bound; }
  bool listens(int) override { return is_listening; }

  bool is_bound = true, is_listening = true, has_too_many = false;
  int questions = 0;  // of domains

 private:
  const std::uint64_t id_;
  const SocketAddress own_;
  const Domain domain_;
  std::map<std::array<std::uint8_t, 16>, Domain> addresses_;
};

// An engine that takes its time, and gives entries back in an order of its own.
class PlayedEngine : public Engine {
 public:
  explicit PlayedEngine(unsigned seed, std::size_t room = 16, std::uint32_t longest = 4096)
      : random_(seed), room_(room), longest_(longest) {}

  const char* name() const override { return "played"; }
  std::uint32_t longest() const override { return longest_; }
  std::size_t submit(std::span<const Entry> entries) override {
    std::size_t taken = 0;
    while (taken < entries.size() && under_way_.size() < room_) {
      under_way_.push_back(entries[taken++]);
    }
    return taken;
  }
  std::size_t reap(std::span<Entry> done) override {
    std::size_t count = 0;
    while (count < done.size() && !under_way_.empty() && random_() % 3 != 0) {
      const std::size_t index = random_() % under_way_.size();
      Entry entry = under_way_[index];
      under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(index));
      std::memcpy(reinterpret_cast<void*>(entry.destination),
                  reinterpret_cast<const void*>(entry.source), length_of(entry));
      entry.type = fails_next ? EntryType::kFailed : EntryType::kCompleted;
      fails_next = false;
      done[count++] = entry;
    }
    return count;
  }
  int descriptor() const override { return -1; }
  bool is_idle() const { return under_way_.empty(); }

  bool fails_next = false;

 private:
  std::minstd_rand random_;
  const std::size_t room_;
  const std::uint32_t longest_;
  std::vector<Entry> under_way_;
};

// After the last program has ended: the engine's last pieces, and what nobody is told of any more.
template <typename PlayedOrReal>
void finish(Driver& driver, const PlayedOrReal& engine) {
  for (int round = 0; round < 2000 && !engine.is_idle(); ++round) driver.pump();
  driver.announce();
}

// Memory of the driver's, as a program maps it.
class Mapped {
 public:
  explicit Mapped(int descriptor, std::size_t size)
      : base_(static_cast<std::byte*>(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0))),
        size_(size) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { ::munmap(base_, size_); }
  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* const base_;
  const std::size_t size_;
};

// A program without PD Lib: it writes what it likes into its queues.
class PlayedProgram {
 public:
  struct Told {
    std::uint64_t done = 0, received = 0;
    std::uint16_t flags = 0;
  };

  PlayedProgram(Driver& driver, std::shared_ptr<NetworkNamespace> network, std::uint64_t pids = 1,
                std::uint32_t user = 0, std::int32_t pid = 1)
      : driver_(&driver), session_(driver.open({pid, user, pids, std::move(network)})) {
    ControlRequest hello;
    hello.call = Call::kHello;
    hello.number = kControlVersion;
    const ControlReply reply = ask(hello);
    lanes_ = reply.number;
    name_ = reply.sizes[0];
    given_ = {copy(session_->queue_descriptor()), copy(session_->doorbell()),
              copy(session_->notice())};
    queues_ = std::make_unique<Mapped>(session_->queue_descriptor(), QueueMemory::size(lanes_));
    readers_.resize(lanes_);
  }

  ControlReply ask(const ControlRequest& request) {
    std::vector<Given> given;
    if (request.call == Call::kBind && session_->peer.network->has_bound(-1, request.address)) {
      given.push_back(std::make_shared<const UniqueFd>(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
    }
    return ask(request, given);
  }
  ControlReply ask(const ControlRequest& request, const std::vector<Given>& given) {
    auto answer = driver_->handle(session_, request, given);
    driver_->sent(answer);
    rings_of_answer = std::move(answer.keep);
    newest_.number = std::max(newest_.number, answer.reply.socket.number);
    newest_.generation = std::max(newest_.generation, answer.reply.socket.generation);
    return answer.reply;
  }
  ControlReply ask(Call call, SocketId socket, std::uint32_t number = 0, std::uint64_t size = 0,
                   SocketAddress address = {}) {
    ControlRequest request;
    request.call = call;
    request.socket = socket;
    request.number = number;
    request.sizes[0] = size;
    request.address = address;
    return ask(request);
  }
  static Given copy(int descriptor) {
    return std::make_shared<const UniqueFd>(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  }

  // The driver is gone, as if it were killed. The program does not know it yet.
  Peer lose_driver() {
    Peer peer = session_->peer;
    rings_of_answer.clear();
    session_.reset();
    return peer;
  }
  // Another one is there.
  ControlReply resume(Driver& driver, Peer peer) {
    reap();
    driver_ = &driver;
    session_ = driver.open(std::move(peer));
    ControlRequest request;
    request.call = Call::kResume;
    request.number = kControlVersion;
    request.sizes[0] = name_;
    request.socket = newest_;
    ++request.socket.number;
    return ask(request, given_);
  }
  // Sends that are not done, again.
  void resend(SocketId socket, std::uint32_t lane) {
    for (const Entry& entry : under_way(socket)) {
      while (!submit(entry, lane)) driver_->work(session_, 64);
    }
  }
  const std::deque<Entry>& under_way(SocketId socket) {
    auto& entries = log_[{socket.number, socket.generation}];
    while (!entries.empty() && entries.front().destination <= of(socket).done) entries.pop_front();
    return entries;
  }

  SocketId socket() { return ask(Call::kSocket, {}, AF_INET).socket; }
  SocketId listening(const SocketAddress& at, std::uint32_t backlog = 8) {
    const SocketId id = socket();
    ask(Call::kBind, id, 0, 0, at);
    ask(Call::kListen, id, backlog);
    return id;
  }

  bool submit(const Entry& entry, std::uint32_t lane = 0) {
    std::uint64_t position = 0;
    return pipe::submit(queue(lane), entry, &position);
  }
  bool send(SocketId socket, std::uint32_t block, std::uint64_t offset, std::uint32_t length,
            std::uint32_t lane = 0) {
    Entry entry;
    entry.type = EntryType::kSend;
    entry.source = offset;
    const auto number = ++sends_[{socket.number, socket.generation}];
    entry.destination = number;
    entry.length = encoded_length(length);
    entry.connection = static_cast<std::uint16_t>(socket.number);
    entry.generation = socket.generation;
    entry.sequence = static_cast<std::uint16_t>(block);
    if (submit(entry, lane)) {
      log_[{socket.number, socket.generation}].push_back(entry);
      return true;
    }
    sends_[{socket.number, socket.generation}] = number - 1;
    return false;
  }
  bool read(SocketId socket, std::uint64_t all, std::uint32_t lane = 0) {
    Entry entry;
    entry.type = EntryType::kReceiveDone;
    entry.source = all;
    entry.connection = static_cast<std::uint16_t>(socket.number);
    entry.generation = socket.generation;
    return submit(entry, lane);
  }
  // Takes the completions.
  void reap() {
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      Entry entry;
      while (readers_[lane].take(queue(lane), &entry)) {
        Told& news = told[{std::uint32_t{entry.connection}, std::uint32_t{entry.generation}}];
        const std::uint64_t done = entry.source, received = entry.destination;
        news.done = std::max(news.done, done);
        news.received = std::max(news.received, received);
        news.flags |= entry.flags;
      }
    }
  }
  const Told& of(SocketId socket) { return told[{socket.number, socket.generation}]; }

  Queue& queue(std::uint32_t lane) {
    return reinterpret_cast<QueueMemory*>(queues_->base())->queues[lane];
  }
  void want_notice() { want(reinterpret_cast<QueueMemory*>(queues_->base())->notice_wanted); }
  std::uint32_t lanes() const { return lanes_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  void end() {
    if (session_) driver_->close(session_);
    session_.reset();
  }

  std::vector<std::shared_ptr<Ring>> rings_of_answer;  // send, receive
  std::map<std::pair<std::uint32_t, std::uint32_t>, Told> told;

 private:
  Driver* driver_;
  std::shared_ptr<Session> session_;
  std::uint32_t lanes_ = 0;
  std::unique_ptr<Mapped> queues_;
  std::vector<CompletionReader> readers_;
  std::uint64_t name_ = 0;
  SocketId newest_;  // the highest of both
  std::vector<Given> given_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Entry>> log_;  // by socket
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> sends_;    // by socket
};

}  // namespace ferry::pipe
