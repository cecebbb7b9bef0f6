#include "host/letters/moved_names.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/control/control_server.h"
#include "host/letters/letter_message.h"
#include "host/letters/qp_names.h"
#include "host/peers/kept_peers.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "host/standin/residents.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLookEvery{500};      // between looks at the programs of this host
constexpr seconds kTellEvery{2};             // then a ferryd is told again: it may be a new one
constexpr milliseconds kReplyLimit{2000};    // for another ferryd, the first handshake included
constexpr milliseconds kShortLimit{1000};    // for another ferryd, while a program stands still
constexpr std::chrono::minutes kSilent{15};  // then names that a silent ferryd told are dropped
// Limits for the names of one ferryd, and for those of all ferryds together: one message to a process has all.
constexpr std::size_t kMostGids = 4096;
constexpr std::size_t kMostDatagramQps = 65536;  // a QP counts once for each of its GIDs
constexpr std::size_t kMostOfProcess = 16384;    // UD QPs of one process, counted in the same way

std::size_t size_of(const device::DatagramQps& qps) {
  return qps.gids.size() * qps.qpns.size();
}

// Adds `qps` to `all`, which has `*size` names, if there is room for them.
void add(const device::DatagramQps& qps, std::size_t* size, std::set<device::DatagramQps>* all) {
  if (size_of(qps) > kMostDatagramQps - *size) return;
  if (all->insert(qps).second) *size += size_of(qps);
}

}  // namespace

MovedNames::MovedNames(const ThisHost& host, ControlServer& control, const Carrier& carrier,
                       const Residents& residents, const QpNames& qp_names, KeptPeers& peers,
                       HasDevices has_devices)
    : host_(host),
      control_(control),
      carrier_(carrier),
      residents_(residents),
      qp_names_(qp_names),
      peers_(peers),
      has_devices_(std::move(has_devices)),
      thread_([this] { look(); }) {}

MovedNames::~MovedNames() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

// Throws Failure for bytes that are no GID, and for too many names.
MovedNames::Names MovedNames::names_in(const v1::MovedNames& message) {
  if (static_cast<std::size_t>(message.gids_size()) > kMostGids)
    throw Failure("too many GIDs in a message between ferryds");
  Names names;
  for (const auto& gid : message.gids()) names.gids.insert(gid_of(gid));
  std::size_t size = 0;
  for (const auto& each : message.datagram_qps()) {
    device::DatagramQps qps;
    for (const auto& gid : each.gids())
      qps.gids.push_back({gid_of(gid.known()), gid_of(gid.real())});
    for (const auto& qpn : each.qpns()) qps.qpns.push_back({qpn.known(), qpn.real()});
    size += size_of(qps);
    if (size > kMostDatagramQps) throw Failure("too many UD QPs in a message between ferryds");
    names.datagram_qps.insert(std::move(qps));
  }
  return names;
}

void MovedNames::put(const Names& names, v1::MovedNames* message) {
  for (const auto& gid : names.gids) message->add_gids(bytes_of(gid));
  for (const auto& qps : names.datagram_qps) {
    auto* each = message->add_datagram_qps();
    for (const auto& gid : qps.gids) {
      auto* pair = each->add_gids();
      pair->set_known(bytes_of(gid.known));
      pair->set_real(bytes_of(gid.real));
    }
    for (const auto& qpn : qps.qpns) {
      auto* pair = each->add_qpns();
      pair->set_known(qpn.known);
      pair->set_real(qpn.real);
    }
  }
}

device::MovedNames MovedNames::message_of(const Names& names) {
  return {{names.gids.begin(), names.gids.end()},
          {names.datagram_qps.begin(), names.datagram_qps.end()}};
}

// The names of the programs on this host. A resident's name without a QPN is a GID that the program has brought.
MovedNames::Names MovedNames::own() {
  Names names;
  for (const auto& resident : residents_.all()) {
    for (const auto& name : resident.names) {
      if (name.qpn == 0) names.gids.insert(name.gid);
    }
  }
  // A process that stands still, or has moved on, has closed its connection to ferryd.
  std::set<pid_t> connected;
  for (const auto& process : control_.processes()) connected.insert(process.pid);
  std::lock_guard lock(mutex_);
  std::erase_if(datagram_qps_,
                [&](const auto& of_process) { return !connected.contains(of_process.first); });
  std::size_t size = 0;
  for (const auto& [pid, contexts] : datagram_qps_) {
    for (const auto& qps : contexts) add(qps, &size, &names.datagram_qps);
  }
  return names;
}

// Gives the part of `contexts`, which process `pid` has said, that is true: the GIDs whose known and real forms are
// both the process's own (QpNames), and under each GID the QPNs of which the same holds.
std::vector<device::DatagramQps> MovedNames::checked(
    pid_t pid, const std::vector<device::DatagramQps>& contexts) const {
  const auto check = [&](const QpNames::Own& own, std::size_t* refused) {
    std::set<device::DatagramQps> all;
    *refused = 0;
    std::size_t size = 0;
    for (const device::DatagramQps& said : contexts) {
      for (const auto& gid : said.gids) {
        device::DatagramQps qps{{gid}, {}};
        const bool is_own = own.has({gid.known, 0}) && own.has({gid.real, 0});
        std::set<device::DatagramQps::Qpn> qpns;
        for (const auto& qpn : said.qpns) {
          if (is_own && own.has({gid.known, qpn.known}) && own.has({gid.real, qpn.real}))
            qpns.insert(qpn);
          else
            ++*refused;
        }
        qps.qpns.assign(qpns.begin(), qpns.end());
        if (!qps.qpns.empty() && size + qps.qpns.size() <= kMostOfProcess) {
          size += qps.qpns.size();
          all.insert(std::move(qps));
        }
      }
    }
    return all;
  };
  std::size_t refused = 0;
  auto all = check(qp_names_.of(pid), &refused);
  if (refused > 0) all = check(qp_names_.of_again(pid), &refused);
  if (refused > 0)
    log::warn("process {} says of {} UD QPs that are not its own where they are", pid, refused);
  return {all.begin(), all.end()};
}

// Leaves out the names that are taken: a QP of the host where the program began may have the number of a QP that the
// program has made since. Then the name belongs to the QP of that host.
void MovedNames::leave_taken(std::vector<device::DatagramQps>* contexts) {
  std::map<port::Address, v1::MovedNamesRequest> claims;
  for (const auto& qps : *contexts) {
    for (const auto& gid : qps.gids) {
      if (gid.known == gid.real) continue;
      auto& request = claims[gid.known];
      request.set_host(host_.name);
      request.set_ferryd(host_.address);
      for (const auto& qpn : qps.qpns) {
        to_message({gid.known, qpn.known}, request.add_claims());
      }
    }
  }
  std::set<device::Letter::End> taken;
  std::mutex noting;
  const std::vector<Carrier::Ferryd> known = carrier_.known();
  in_parallel(claims, [&](const auto& of_gid) {
    for (const Carrier::Ferryd& ferryd : known) {
      if (split_host_port(ferryd.address, kFerrydPort).first != to_string(of_gid.first)) continue;
      v1::MovedNamesReply reply;
      try {
        const auto peer = peers_.get(ferryd.address, ferryd.host);
        if (!peer->try_call(of_gid.second, &reply, kShortLimit).ok()) continue;
        std::lock_guard lock(noting);
        for (const auto& name : reply.taken()) taken.insert(name_of(name));
      } catch (const std::exception&) {
        continue;  // nobody is there who could lose the name
      }
    }
  });
  for (auto& qps : *contexts) {
    std::erase_if(qps.qpns, [&](const auto& qpn) {
      return std::any_of(qps.gids.begin(), qps.gids.end(), [&](const auto& gid) {
        return taken.contains({gid.known, qpn.known});
      });
    });
  }
  std::erase_if(*contexts, [](const auto& qps) { return qps.qpns.empty(); });
}

void MovedNames::look() {
  for (;;) {
    if (has_devices_()) {
      exchange(Whom::kAll);
      qp_names_.look_ahead();
    }
    forget_silent();
    spread();
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kLookEvery, [this] { return stopping_; })) return;
  }
}

void MovedNames::exchange(Whom whom) {
  if (host_.address.empty()) return;
  const Names names = own();
  std::vector<Carrier::Ferryd> due;
  {
    std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (const Carrier::Ferryd& ferryd : carrier_.known()) {
      const Other& other = others_[ferryd.address];
      if (whom == Whom::kThoseThatAnswered && !other.answers) continue;
      const bool is_news =
          other.told != names && (other.answers || whom == Whom::kThoseThatAnswered);
      if (is_news || now - other.told_at >= kTellEvery) due.push_back(ferryd);
    }
  }
  const milliseconds limit = whom == Whom::kAll ? kReplyLimit : kShortLimit;
  in_parallel(due, [&](const Carrier::Ferryd& ferryd) { tell(ferryd, names, limit); });
}

void MovedNames::tell(const Carrier::Ferryd& ferryd, const Names& names, milliseconds limit) {
  v1::MovedNamesRequest request;
  v1::MovedNamesReply reply;
  request.set_host(host_.name);
  request.set_ferryd(host_.address);
  put(names, request.mutable_names());
  Names theirs;
  bool answers = false;
  try {
    const auto peer = peers_.get(ferryd.address, ferryd.host);
    const grpc::Status status = peer->try_call(request, &reply, limit);
    if (!status.ok() && status.error_code() != grpc::DEADLINE_EXCEEDED) peers_.drop(peer);
    answers = status.ok();
    if (answers) theirs = names_in(reply.names());
  } catch (const std::exception&) {
    answers = false;  // the name does not resolve, or the answer is malformed
  }
  std::lock_guard lock(mutex_);
  Other& other = others_[ferryd.address];
  other.told_at = Clock::now();
  other.answers = answers;
  if (!answers) return;
  other.told = names;
  other.theirs = std::move(theirs);
  other.heard_at = other.told_at;
}

void MovedNames::forget_silent() {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (auto& [address, other] : others_) {
    if (now - other.heard_at > kSilent) other.theirs = {};
  }
}

void MovedNames::spread() {
  std::lock_guard spreading(spreading_);
  Names all = own();
  {
    std::lock_guard lock(mutex_);
    std::size_t size = 0;
    for (const auto& [address, other] : others_) {
      const Names& theirs = other.theirs;
      all.gids.insert(theirs.gids.begin(), theirs.gids.end());
      for (const auto& qps : theirs.datagram_qps) add(qps, &size, &all.datagram_qps);
    }
    while (all.gids.size() > kMostGids) all.gids.erase(std::prev(all.gids.end()));
    if (all == known_) return;
    known_ = all;
  }
  for (const auto& process : control_.processes())
    control_.moved_names(process.pid, message_of(all));
}

void MovedNames::arrived() {
  exchange(Whom::kThoseThatAnswered);
  spread();
}

void MovedNames::datagram_qps(pid_t pid, const std::vector<device::DatagramQps>& contexts) {
  auto qps = checked(pid, contexts);
  leave_taken(&qps);
  {
    std::lock_guard lock(mutex_);
    datagram_qps_[pid] = std::move(qps);
  }
  arrived();
}

void MovedNames::registered(pid_t pid) {
  std::lock_guard spreading(spreading_);
  Names known;
  {
    std::lock_guard lock(mutex_);
    known = known_;
  }
  if (known != Names{}) control_.moved_names(pid, message_of(known));
}

v1::MovedNamesReply MovedNames::receive(const v1::MovedNamesRequest& request) {
  v1::MovedNamesReply reply;
  std::vector<device::Letter::End> claims;
  if (static_cast<std::size_t>(request.claims_size()) > kMostOfProcess)
    throw Failure("too many UD QPs in a message between ferryds");
  for (const auto& name : request.claims()) claims.push_back(name_of(name));
  if (!claims.empty()) {
    for (const auto& name : qp_names_.there_are(claims)) {
      to_message(name, reply.add_taken());
    }
  }
  if (!request.has_names()) return reply;
  Names names = names_in(request.names());
  if (!request.ferryd().empty()) {
    std::lock_guard lock(mutex_);
    Other& other = others_[request.ferryd()];
    other.theirs = std::move(names);
    other.heard_at = Clock::now();
  }
  spread();
  put(own(), reply.mutable_names());
  return reply;
}

}  // namespace ferry::host
