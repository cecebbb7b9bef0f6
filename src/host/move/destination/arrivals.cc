#include "host/move/destination/arrivals.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/directory/directory.h"
#include "host/letters/carrier.h"
#include "host/move/settle.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "host/units/units.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kAskEndedEvery{2};  // between questions about arrivals that are over
constexpr std::chrono::milliseconds kEndedAnswerTime{500};
constexpr std::size_t kMostEndings = 1000;

// The hosts from which the programs of the request's group come. `from`: the one that sends this program, by its
// certificate. Throws Failure.
std::vector<ArrivalGroup::Source> sources_of(const v1::PrepareRequest& request,
                                             const std::string& from) {
  const v1::Group& group = request.group();
  const std::size_t programs = std::max(group.programs(), 1u);
  if (group.program() >= programs) throw Failure("malformed request");
  const PeerRecord asker{request.source(), from};
  if (group.sources().empty()) return {{from, programs, asker}};
  std::vector<ArrivalGroup::Source> sources;
  std::size_t sum = 0;
  for (const auto& each : group.sources()) {
    if (each.programs() == 0) throw Failure("malformed request");
    const bool is_its_own = group.program() >= sum && group.program() - sum < each.programs();
    if (is_its_own) need_source(each.host(), from.empty() ? each.host() : from);
    sources.push_back({each.host(), each.programs(), is_its_own ? asker : PeerRecord()});
    sum += each.programs();
  }
  if (sum != programs) throw Failure("malformed request");
  return sources;
}

}  // namespace

// The id of an arrival that is being made: no other one has it.
class Arrivals::Coming {
 public:
  // With the mutex, which is free when this is destroyed.
  Coming(Arrivals& arrivals, std::uint64_t move_id) : arrivals_(arrivals), move_id_(move_id) {
    arrivals_.coming_.insert(move_id_);
  }
  ~Coming() {
    std::lock_guard lock(arrivals_.mutex_);
    arrivals_.coming_.erase(move_id_);
  }
  Coming(const Coming&) = delete;

 private:
  Arrivals& arrivals_;
  const std::uint64_t move_id_;
};

Arrivals::Arrivals(const ThisHost& host, const Units& units, DecisionLog& decisions,
                   Directory& directory, Whereabouts& whereabouts, KeptPeers& peers,
                   Carrier& carrier, const ImageRoom& room, ImageReceiver* images, CriuRunner& criu,
                   Accounts& accounts)
    : host_(host),
      units_(units),
      decisions_(decisions),
      directory_(directory),
      whereabouts_(whereabouts),
      peers_(peers),
      carrier_(carrier),
      room_(room),
      images_(images),
      criu_(criu),
      accounts_(accounts) {}

std::shared_ptr<Arrival> Arrivals::prepare(const v1::PrepareRequest& request,
                                           const std::string& from) {
  return add(request, from, host_.limits.source);
}

std::shared_ptr<Arrival> Arrivals::prepare_restart(const v1::PrepareRequest& request) {
  forget_over();  // a checkpoint may be restarted again and again, always with the ids that its images have
  return add(request, host_.credentials != nullptr ? host_.name : std::string(), std::nullopt);
}

std::shared_ptr<Arrival> Arrivals::add(const v1::PrepareRequest& request, const std::string& from,
                                       std::optional<ArrivalMachine::Time> patience) {
  if (images_ == nullptr) throw Failure("malformed request");
  const auto sources = sources_of(request, from);
  std::shared_ptr<ArrivalGroup> group;
  std::optional<Coming> coming;
  {
    std::lock_guard lock(mutex_);
    bool is_here = coming_.contains(request.move_id());
    for (const auto& [id, other] : arrivals_) {
      is_here = is_here || id == request.move_id() ||
                (other->program() == request.program() && !other->is_over() &&
                 !units_.kind(request.kind()).name_is_free(request.program()));
    }
    if (is_here) {
      throw Failure(fmt::format("'{}' arrives on {} already", request.program(), host_.name));
    }
    coming.emplace(*this, request.move_id());
    if (!patience) decisions_.reuse(request.move_id(), Side::kDestination);
    auto& known = groups_[request.has_group() ? request.group().id() : request.move_id()];
    group = known.lock();
    // Somebody may still look at an arrival of the restart before, which had the same ids.
    const bool begins_restart = !patience && request.group().program() == 0;
    if (!group || begins_restart) {
      known = group = std::make_shared<ArrivalGroup>(
          decisions_, host_.stopping, peers_, sources,
          ArrivalMachine(std::max(request.group().programs(), 1u), patience, ArrivalGroup::now(),
                         sources.size()));
    }
    group->need(sources, request.group().program());
  }
  directory_.met(request.source(), from);
  for (const auto& partner : request.partners()) {
    directory_.met(partner.ferryd(), partner.host());
    carrier_.met({partner.ferryd(), partner.host()});
  }
  auto unit = units_.kind(request.kind()).arrive(request.program(), request.details(), from);
  auto arrival = std::make_shared<Arrival>(host_, decisions_, whereabouts_, room_, images_, criu_,
                                           accounts_, std::move(group), std::move(unit), request);
  std::lock_guard lock(mutex_);
  arrivals_.emplace(request.move_id(), arrival);
  return arrival;
}

std::shared_ptr<Arrival> Arrivals::take_up(std::uint64_t move_id, const Held& held) {
  const auto source = parse_peer(held.peer);
  directory_.met(source.address, source.name);
  auto group =
      std::make_shared<ArrivalGroup>(decisions_, host_.stopping, peers_,
                                     std::vector<ArrivalGroup::Source>{{source.name, 1, source}},
                                     ArrivalMachine::recovered(Decision::kCommitted));
  auto arrival = std::make_shared<Arrival>(
      host_, decisions_, whereabouts_, room_, images_, criu_, accounts_, std::move(group),
      units_.known(held.program, held.instance), move_id, held);
  std::lock_guard lock(mutex_);
  arrivals_[move_id] = arrival;
  return arrival;
}

std::shared_ptr<Arrival> Arrivals::find(std::uint64_t move_id) const {
  std::lock_guard lock(mutex_);
  const auto found = arrivals_.find(move_id);
  return found == arrivals_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Arrival>> Arrivals::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Arrival>> all;
  for (const auto& [id, arrival] : arrivals_) all.push_back(arrival);
  return all;
}

std::optional<Ending> Arrivals::ending(std::uint64_t move_id) const {
  std::lock_guard lock(mutex_);
  const auto running = arrivals_.find(move_id);
  if (running != arrivals_.end()) return running->second->ending();
  const auto kept = std::find_if(endings_.begin(), endings_.end(),
                                 [&](const auto& entry) { return entry.first == move_id; });
  if (kept == endings_.end()) return std::nullopt;
  return kept->second;
}

void Arrivals::keep_ending(const Arrival& arrival) {
  auto ending = arrival.ending();
  if (!ending) return;
  std::erase_if(endings_, [&](const auto& entry) { return entry.first == arrival.move_id(); });
  endings_.emplace_back(arrival.move_id(), std::move(*ending));
  if (endings_.size() > kMostEndings) endings_.pop_front();
}

void Arrivals::registered(pid_t pid) const {
  const pid_t inner = innermost_pid(pid).value_or(pid);
  for (const auto& arrival : all()) {
    if (arrival->has_process(pid)) arrival->registered(inner);
  }
}

void Arrivals::keep_house() {
  for (const auto& arrival : all()) arrival->keep_house();
  forget_ended();
  forget_over();
}

void Arrivals::forget_over() {
  // Destroyed without the lock: destructors wait for threads.
  std::vector<std::shared_ptr<Arrival>> over;
  std::lock_guard lock(mutex_);
  std::erase_if(arrivals_, [&](const auto& entry) {
    if (!entry.second->is_over()) return false;
    keep_ending(*entry.second);
    over.push_back(entry.second);
    return true;
  });
  std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
}

// Forgets the arrivals that are over, here and at their source: a source that has forgotten the
// move as well (it answers kAborted) will not ask for its commit any more.
void Arrivals::forget_ended() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kAskEndedEvery) return;
  asked_ = now;
  std::set<std::string> silent;
  for (const auto& [move_id, source] : decisions_.ended_arrivals()) {
    if (host_.stopping) return;
    if (silent.contains(source)) continue;
    try {
      const auto [address, name] = parse_peer(source);
      if (ask_decision(peers_, address, name, move_id, kEndedAnswerTime) == Answer::kAborted) {
        decisions_.forget_ended_arrival(move_id);
      }
    } catch (const Failure&) {
      silent.insert(source);  // the source may still need the record
    }
  }
}

}  // namespace ferry::host
