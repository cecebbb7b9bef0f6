#include "host/standin/redirector.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "cm/destination.h"
#include "ferry.pb.h"
#include "gsi/local.h"
#include "gsi/wire_socket.h"
#include "host/directory/places.h"
#include "host/peers/peer.h"
#include "host/standin/origins.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

constexpr int kRefreshMs = 200;
constexpr std::chrono::milliseconds kAnswer{1000};  // for the host of an RNIC to answer
constexpr std::size_t kMaxRequests = 1024;          // more are dropped: their senders ask again

}  // namespace

Redirector::Redirector(KeptPeers& peers, const Origins& origins, StandInHost& stand_ins)
    : peers_(peers),
      origins_(origins),
      stand_ins_(stand_ins),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw Failure("cannot start the redirector: " + error_text(errno));
  stand_ins_.set_management(
      [this](StandInId id, const cm::Mad& mad, const port::Address& from, const port::Address& to) {
        std::lock_guard lock(mutex_);
        if (requests_.size() < kMaxRequests) requests_.push_back({id, mad, from, to});
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
      });
  thread_ = std::thread([this] { run(); });
}

Redirector::~Redirector() {
  stand_ins_.set_management({});
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
  }
  thread_.join();
}

// Opens the names under which holders of UDP port 4791 on this host find the redirector, one for
// each address that some RNIC has left. Holders in other network namespaces cannot find them.
void Redirector::refresh() {
  const auto addresses = origins_.addresses();
  std::erase_if(receivers_, [&](const auto& entry) { return !addresses.contains(entry.first); });
  for (const auto& address : addresses) {
    if (receivers_.contains(address)) continue;
    int error = 0;
    UniqueFd receiver(gsi::open_receiver(gsi::away_name(address), &error));
    if (receiver) receivers_.emplace(address, std::move(receiver));
  }
}

void Redirector::run() {
  for (;;) {
    refresh();
    std::vector<pollfd> descriptors{{event_.get(), POLLIN, 0}};
    for (const auto& [address, receiver] : receivers_) {
      descriptors.push_back({receiver.get(), POLLIN, 0});
    }
    ::poll(descriptors.data(), descriptors.size(), kRefreshMs);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = ::read(event_.get(), &count, sizeof count);
    std::deque<Request> requests;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      requests.swap(requests_);
    }
    for (const auto& [address, receiver] : receivers_) {
      while (const auto datagram = gsi::receive(receiver.get())) {
        requests.push_back({0, datagram->mad, datagram->from, datagram->to});
      }
    }
    for (const auto& request : requests) {
      report_failure([&] { handle(request); });
    }
  }
}

void Redirector::handle(const Request& request) {
  const auto whom = cm::destination_of(request.mad);
  if (!whom || whom->process) return;
  v1::ListenerRequest question;
  question.set_address(request.to.bytes.data(), request.to.bytes.size());
  question.set_service(whom->service);
  std::map<std::string, std::string> hosts;
  for (const Place& place : origins_.kept(request.to)) {
    hosts.emplace(place.ferryd, place.host);
  }
  if (hosts.empty()) return;  // the program is stopped and not yet gone: the sender asks again
  std::optional<cm::Mad> answer = cm::answer_for_nobody(request.mad);
  for (const auto& [ferryd, host] : hosts) {
    v1::ListenerReply reply;
    const auto peer = peers_.get(ferryd, host);
    if (!peer->try_call(question, &reply, kAnswer).ok()) {
      peers_.drop(peer);
      answer.reset();  // the listener may be there: no answer, and the sender asks again
      continue;
    }
    for (const auto& message : reply.places()) {
      const auto place = from_message(message);
      if (!place || place->origin.address != request.to) continue;
      answer = cm::redirection_of(request.mad, place->location.address);
      break;
    }
    if (reply.places_size() > 0) break;
  }
  if (!answer) return;
  if (request.stand_in != 0) {
    stand_ins_.send_management(request.stand_in, *answer, request.from);
    return;
  }
  int error = 0;
  if (auto socket = gsi::WireSocket::open(request.to, &error)) {
    socket->send(*answer, request.from);
  } else {
    log::warn("cannot answer {} from {}: {}", to_string(request.from), to_string(request.to),
              error_text(error));
  }
}

}  // namespace ferry::host
