#include "host/letters/carrier.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "base/parallel.h"
#include "device/parcel.h"
#include "ferry.pb.h"
#include "host/control/caused_lines.h"
#include "host/control/control_server.h"
#include "host/directory/directory.h"
#include "host/letters/letter_message.h"
#include "host/letters/qp_names.h"
#include "host/peers/kept_peers.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{60};  // how long a letter is tried whose receiver is nowhere
constexpr milliseconds kFirstPause{5}, kLongestPause{500};
// While a process's latest letter is fresh, its letters are tried more often: the receiver may just be connecting its
// QP with the sender's.
constexpr milliseconds kFresh{3000}, kLongestPauseOfFresh{30};
constexpr milliseconds kAnswer{5000};        // for another ferryd, the first handshake included
constexpr milliseconds kDelivery{5000};      // for a process to take letters and answer
constexpr milliseconds kOfProgram{1000};     // for a process to give its status
constexpr std::size_t kMostBytes = 1 << 20;  // of one letter
// Of a request to another ferryd, which takes at most 4 MB (gRPC's limit). A letter counts with its names.
constexpr std::size_t kMostBytesOfRequest = 2 << 20, kBytesOfNames = 128;
constexpr std::size_t kMostRoutes = 1 << 17;

bool is_settled(std::int32_t error) {
  return error == 0 || error == EINVAL;
}

// The ferryd that a peer with this GID should have: as a rule, a host's ferryd listens at its RDMA address too.
Carrier::Ferryd at_address(const port::Address& gid) {
  return {join_host_port(to_string(gid), kFerrydPort), {}};
}

}  // namespace

Carrier::Carrier(const ThisHost& host, ControlServer& control, Directory& directory, QpNames& names,
                 KeptPeers& peers, std::size_t most)
    : host_(host),
      control_(control),
      directory_(directory),
      names_(names),
      peers_(peers),
      most_(most) {}

Carrier::~Carrier() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return boxes_.empty(); });
}

void Carrier::send(pid_t pid, std::vector<device::Letter> letters) {
  QpNames::Own own = names_.remembered(pid);
  const auto are_own = [&] {
    return std::all_of(letters.begin(), letters.end(),
                       [&](const device::Letter& letter) { return own.has(letter.from); });
  };
  if (!are_own()) own = names_.of(pid);
  if (!are_own()) own = names_.of_again(pid);
  std::erase_if(letters, [&](const device::Letter& letter) {
    const bool is_own = own.has(letter.from);
    if (!is_own) {
      warn_of(pid, "process {} writes in the name of QP {:#08x} of {}, which is not its own", pid,
              letter.from.qpn, to_string(letter.from.gid));
    } else if (letter.bytes.size() > kMostBytes) {
      warn_of(pid, "process {} writes letters of more than {} bytes", pid, kMostBytes);
    }
    return !is_own || letter.from.qpn == 0 || letter.bytes.empty() ||
           letter.bytes.size() > kMostBytes;
  });
  if (letters.empty()) return;
  std::set<device::Letter::End> senders;
  for (const auto& letter : letters) senders.insert(letter.from);
  names_.remember({{pid, senders}});
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  const auto [box, is_new] = boxes_.try_emplace(pid);
  auto& [waiting, carried] = box->second;
  if (waiting.size() + carried + letters.size() > most_) {
    warn_of(pid, "process {} has more letters under way than {}", pid, most_);
    if (is_new) boxes_.erase(box);  // it has no thread
    return;
  }
  for (auto& letter : letters) waiting.push_back({std::move(letter), Clock::now()});
  changed_.notify_all();
  if (is_new) std::thread([this, pid] { work(pid); }).detach();
}

// The thread of a process's box: carries its letters until none is left, or the Carrier ends.
void Carrier::work(pid_t pid) {
  std::vector<Pending> mine;
  milliseconds pause = kFirstPause;
  std::unique_lock lock(mutex_);
  for (;;) {
    auto& [fresh, carried] = boxes_.at(pid);
    if (!fresh.empty()) pause = kFirstPause;
    std::move(fresh.begin(), fresh.end(), std::back_inserter(mine));
    fresh.clear();
    carried = mine.size();
    if (mine.empty() || stopping_) break;
    lock.unlock();
    carry(pid, &mine);
    lock.lock();
    boxes_.at(pid).carried = mine.size();
    if (mine.empty()) continue;
    changed_.wait_for(lock, pause, [&] { return stopping_ || !boxes_.at(pid).letters.empty(); });
    const bool is_fresh = Clock::now() - mine.back().since < kFresh;
    pause = std::min(pause * 2, is_fresh ? kLongestPauseOfFresh : kLongestPause);
  }
  boxes_.erase(pid);
  changed_.notify_all();
}

// Tries all letters once, and takes those out of `letters` that need no further try.
void Carrier::carry(pid_t pid, std::vector<Pending>* letters) {
  Letters all, unwanted;
  for (const auto& pending : *letters) all.push_back(pending.letter);
  std::set<std::string> silent;
  const Errors errors = ask_all(all, Task::kDeliver, &silent);
  const auto now = Clock::now();
  std::vector<Pending> left;
  for (std::size_t i = 0; i < letters->size(); ++i) {
    Pending& pending = (*letters)[i];
    if (is_settled(errors[i])) continue;
    const bool is_late = now - pending.since >= kPatience;
    // EOPNOTSUPP: a program without Ferry has a QP of this name. It may be another QP of the same number, so the
    // letter is tried on.
    const bool is_unwanted = is_late || errors[i] == EOPNOTSUPP;
    if (is_unwanted && !std::exchange(pending.is_given_back, true)) {
      unwanted.push_back(pending.letter);
      log::info(
          "no program of Ferry's has QP {:#08x} of {}, to which QP {:#08x} of {} is connected",
          pending.letter.to.qpn, to_string(pending.letter.to.gid), pending.letter.from.qpn,
          to_string(pending.letter.from.gid));
    }
    if (!is_late) left.push_back(std::move(pending));
  }
  *letters = std::move(left);
  if (!unwanted.empty()) give_back(pid, unwanted);
}

void Carrier::give_back(pid_t pid, const Letters& letters) {
  agent::Letters back;
  for (const auto& letter : letters) back.letters.push_back({letter.to, letter.from, {}});
  try {
    control_.deliver(pid, back, kDelivery);
  } catch (const Failure&) {
    // The sender has ended, or stops.
  }
}

void Carrier::met(const Ferryd& ferryd) {
  if (ferryd.address.empty() || ferryd.address == host_.address) return;
  directory_.met(ferryd.address, ferryd.host);
  std::lock_guard lock(mutex_);
  met_[ferryd.address] = ferryd.host;
}

std::vector<Carrier::Ferryd> Carrier::known() const {
  auto hosts = directory_.hosts();
  {
    std::lock_guard lock(mutex_);
    hosts.insert(met_.begin(), met_.end());
  }
  std::vector<Ferryd> known;
  for (const auto& [address, host] : hosts) known.push_back({address, host});
  return known;
}

// Asks the ferryd where each receiver was last, then the programs of this host, then all known ferryds and those at
// the receivers' GIDs. A letter that is settled is not asked about again.
Carrier::Errors Carrier::ask_all(const Letters& letters, Task task, std::set<std::string>* silent) {
  Errors errors(letters.size(), ENOENT);
  // Asks `ferryd` about the unsettled letters that `picks` chooses, in their order, and notes its answers in `errors`.
  std::mutex noting;
  const auto try_there = [&](const Ferryd& ferryd, auto picks) {
    Letters part;
    std::vector<std::size_t> indexes;
    {
      std::lock_guard lock(noting);
      for (std::size_t i = 0; i < letters.size(); ++i) {
        if (is_settled(errors[i]) || !picks(letters[i])) continue;
        part.push_back(letters[i]);
        indexes.push_back(i);
      }
    }
    if (part.empty()) return;
    const auto answers = ferryd.address.empty() ? hand_over(part, task) : ask(ferryd, part, task);
    std::lock_guard lock(noting);
    if (answers.size() < part.size()) silent->insert(ferryd.address);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      // What one host has said of the QP stays when another host does not know the QP.
      if (!is_settled(errors[indexes[i]]) && answers[i] != ENOENT) errors[indexes[i]] = answers[i];
    }
  };
  std::map<device::Letter::End, Ferryd> routes;
  std::set<Ferryd> used;
  {
    std::lock_guard lock(mutex_);
    for (const auto& letter : letters) {
      const auto route = routes_.find(letter.to);
      if (route == routes_.end()) continue;
      routes.insert(*route);
      used.insert(route->second);
    }
  }
  in_parallel(used, [&](const Ferryd& ferryd) {
    try_there(ferryd, [&](const device::Letter& letter) {
      const auto route = routes.find(letter.to);
      return route != routes.end() && route->second == ferryd;
    });
  });
  const auto any = [](const device::Letter&) { return true; };
  const auto is_left = [&] {
    return std::any_of(errors.begin(), errors.end(), [](auto error) { return !is_settled(error); });
  };
  if (is_left()) try_there({}, any);
  if (!is_left() || host_.address.empty()) return errors;
  std::vector<Ferryd> others = known();
  std::set<std::string> addresses{host_.address};
  for (const Ferryd& ferryd : others) addresses.insert(ferryd.address);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    Ferryd guess = at_address(letters[i].to.gid);
    if (!is_settled(errors[i]) && addresses.insert(guess.address).second)
      others.push_back(std::move(guess));
  }
  in_parallel(others, [&](const Ferryd& ferryd) { try_there(ferryd, any); });
  return errors;
}

// Of the first letters only, if the ferryd does not answer any more.
Carrier::Errors Carrier::ask(const Ferryd& ferryd, const Letters& letters, Task task) {
  Errors errors;
  // Of a connection with a refused letter: the next ones wait.
  std::set<std::pair<device::Letter::End, device::Letter::End>> missed;
  while (errors.size() < letters.size()) {
    const std::size_t first = errors.size();
    std::vector<std::size_t> asked;
    v1::LettersRequest request;
    std::size_t bytes = 0;
    for (std::size_t i = first; i < letters.size(); ++i) {
      bytes += letters[i].bytes.size() + kBytesOfNames;
      if (bytes > kMostBytesOfRequest && i > first) break;
      errors.push_back(ENOENT);
      if (missed.contains({letters[i].from, letters[i].to})) continue;
      asked.push_back(i);
      to_message(letters[i], request.add_letters());
    }
    if (asked.empty()) continue;
    const auto answers = ask_at_once(ferryd, std::move(request), task);
    if (!answers) {
      errors.resize(first);
      break;
    }
    for (std::size_t i = 0; i < asked.size(); ++i) {
      errors[asked[i]] = (*answers)[i];
      if (!is_settled((*answers)[i])) missed.emplace(letters[asked[i]].from, letters[asked[i]].to);
    }
  }
  std::lock_guard lock(mutex_);
  if (routes_.size() > kMostRoutes) routes_.clear();
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (errors[i] == 0) {
      routes_[letters[i].to] = ferryd;
    } else if (const auto route = routes_.find(letters[i].to);
               route != routes_.end() && route->second == ferryd) {
      routes_.erase(route);
    }
  }
  return errors;
}

// One request. Nothing: the ferryd does not answer.
std::optional<Carrier::Errors> Carrier::ask_at_once(const Ferryd& ferryd,
                                                    v1::LettersRequest request, Task task) {
  v1::LettersReply reply;
  request.set_host(host_.name);
  request.set_ferryd(host_.address);
  request.set_only_ask(task == Task::kAsk);
  try {
    const auto peer = peers_.get(ferryd.address, ferryd.host);
    const grpc::Status status = peer->try_call(request, &reply, kAnswer);
    // After a timeout the peer is kept, since its connection may just be being made.
    if (!status.ok() && status.error_code() != grpc::DEADLINE_EXCEEDED) peers_.drop(peer);
    if (!status.ok() || reply.errors_size() != request.letters_size()) return std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // the name does not resolve, or the address has no certificate
  }
  return Errors(reply.errors().begin(), reply.errors().end());
}

// Programs tell their QPs and the QPs' peers. A letter goes to a program only if the receiving QP is the program's own
// (QpNames). Those that have got letters for these QPs before are asked first: a host may have many programs.
std::vector<pid_t> Carrier::owners_of(const std::vector<Connection>& connections) {
  std::vector<pid_t> owners(connections.size(), 0);
  std::set<device::Letter::End> wanted;
  for (const auto& connection : connections) wanted.insert(connection.own);
  const auto likely = names_.who_had(wanted);
  look_for_owners(likely, connections, &owners);
  if (std::find(owners.begin(), owners.end(), 0) == owners.end()) return owners;
  std::set<pid_t> others;
  for (const auto& process : control_.processes()) {
    if (!likely.contains(process.pid)) others.insert(process.pid);
  }
  look_for_owners(others, connections, &owners);
  return owners;
}

// Sets those that are not known yet and are among `pids`.
void Carrier::look_for_owners(const std::set<pid_t>& pids,
                              const std::vector<Connection>& connections,
                              std::vector<pid_t>* owners) {
  if (pids.empty()) return;
  std::multimap<std::pair<device::Letter::End, device::Letter::End>, std::size_t> wanted;
  for (std::size_t i = 0; i < connections.size(); ++i) {
    if ((*owners)[i] == 0) wanted.insert({{connections[i].own, connections[i].peer}, i});
  }
  std::map<pid_t, std::set<std::size_t>> claims;
  for (const auto& [pid, status] : control_.statuses(pids, kOfProgram)) {
    for (const auto& context : status.contexts) {
      if (device::device_behind(context.place).empty()) continue;
      for (const auto& qp : context.qps) {
        const auto [begin, end] =
            wanted.equal_range({{qp.local.address, qp.qpn}, {qp.peer.address, qp.peer_qpn}});
        for (auto each = begin; each != end; ++each) claims[pid].insert(each->second);
      }
    }
  }
  std::map<pid_t, QpNames::Own> own;
  std::set<pid_t> unknown;
  for (const auto& [pid, indexes] : claims) {
    own[pid] = names_.remembered(pid);
    if (std::any_of(indexes.begin(), indexes.end(),
                    [&](auto i) { return !own[pid].has(connections[i].own); }))
      unknown.insert(pid);
  }
  if (!unknown.empty()) {
    for (auto& [pid, names] : names_.of(unknown)) own[pid] = std::move(names);
  }
  std::map<pid_t, std::set<device::Letter::End>> found;
  for (const auto& [pid, indexes] : claims) {
    for (const std::size_t i : indexes) {
      if (!own[pid].has(connections[i].own)) continue;
      (*owners)[i] = pid;
      found[pid].insert(connections[i].own);
    }
  }
  names_.remember(found);
}

// Sets EOPNOTSUPP for letters whose receiving QP belongs to a program of this host that runs without Ferry.
void Carrier::note_others(const Letters& letters, const std::vector<pid_t>& owners,
                          Errors* errors) {
  std::vector<device::Letter::End> names;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (owners[i] == 0) names.push_back(letters[i].to);
  }
  if (names.empty() || Clock::now() - began_ < kAllHaveRegistered) return;
  const auto there_are = names_.there_are(names);
  if (there_are.empty()) return;
  std::set<pid_t> pids;
  for (const auto& process : control_.processes()) pids.insert(process.pid);
  const auto ferrys = names_.of(pids);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (owners[i] != 0 || !there_are.contains(letters[i].to)) continue;
    const bool is_ferrys = std::any_of(ferrys.begin(), ferrys.end(), [&](const auto& each) {
      return each.second.has(letters[i].to);
    });
    if (!is_ferrys) (*errors)[i] = EOPNOTSUPP;
  }
}

Carrier::Errors Carrier::hand_over(const Letters& letters, Task task) {
  Errors errors(letters.size(), ENOENT);
  std::vector<Connection> connections;
  for (const auto& letter : letters) connections.push_back({letter.to, letter.from});
  const auto owners = owners_of(connections);
  note_others(letters, owners, &errors);
  std::map<pid_t, std::vector<std::size_t>> of_processes;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (owners[i] != 0) of_processes[owners[i]].push_back(i);
  }
  in_parallel(of_processes, [&](const auto& process) {
    agent::Letters part;
    for (const std::size_t index : process.second) {
      errors[index] = 0;
      part.letters.push_back(letters[index]);
    }
    if (task == Task::kAsk) return;
    agent::Delivered delivered;
    try {
      delivered = control_.deliver(process.first, part, kDelivery);
    } catch (const Failure&) {
      delivered.errors.assign(part.letters.size(), ESRCH);  // the process has ended, or stops
    }
    for (std::size_t i = 0; i < process.second.size(); ++i)
      errors[process.second[i]] = delivered.errors[i];
  });
  return errors;
}

v1::LettersReply Carrier::receive(const v1::LettersRequest& request) {
  const Ferryd asking{request.ferryd(), request.host()};
  met(asking);
  Letters letters;
  for (const auto& message : request.letters()) letters.push_back(letter_of(message));
  if (!request.only_ask() && std::any_of(letters.begin(), letters.end(),
                                         [](const auto& letter) { return letter.bytes.empty(); }))
    throw Failure("a letter of no bytes from another ferryd");
  if (!asking.address.empty()) {
    std::lock_guard lock(mutex_);
    if (routes_.size() > kMostRoutes) routes_.clear();
    if (!request.only_ask()) {
      for (const auto& letter : letters) routes_[letter.from] = asking;
    }
  }
  v1::LettersReply reply;
  for (const auto error : hand_over(letters, request.only_ask() ? Task::kAsk : Task::kDeliver))
    reply.add_errors(error);
  return reply;
}

Carrier::Found Carrier::find(const std::vector<Connection>& connections) {
  Letters letters;
  for (const auto& connection : connections)
    letters.push_back({connection.own, connection.peer, {}});
  Found found;
  const Errors errors = ask_all(letters, Task::kAsk, &found.silent);
  found.places.resize(letters.size());
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (errors[i] != 0) continue;
    const auto route = routes_.find(letters[i].to);
    found.places[i] = route != routes_.end() ? route->second : Ferryd{};
  }
  return found;
}

void Carrier::find_at(const std::set<port::Address>& addresses) {
  std::vector<Ferryd> guesses;
  for (const port::Address& address : addresses) {
    Ferryd guess = at_address(address);
    if (guess.address != host_.address) guesses.push_back(std::move(guess));
  }
  in_parallel(guesses, [&](const Ferryd& guess) {
    if (ask_at_once(guess, {}, Task::kAsk)) met(guess);
  });
}

}  // namespace ferry::host
