#include "host/ferryd/daemon.h"

#include <fmt/core.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/attestation/attestor.h"
#include "host/control/caused_lines.h"
#include "host/detach/detachments.h"
#include "host/directory/directory.h"
#include "host/ferryd/ps.h"
#include "host/image/checkpoint_note.h"
#include "host/image/image_room.h"
#include "host/letters/carrier.h"
#include "host/letters/letter_message.h"
#include "host/letters/moved_names.h"
#include "host/move/destination/device_choice.h"
#include "host/move/settle.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "host/proc/silence.h"
#include "host/proc/subprocess.h"
#include "host/standin/whereabouts.h"
#include "host/units/criu_runner.h"
#include "host/units/rdma_cm_trial.h"
#include "host/units/stdio_file.h"
#include "host/units/units.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kImageFactor = 2;  // the image is in memory beside the restored pages

// For processes of a host that was rebooted: other processes have their pids.
void forget_processes(Held* held) {
  constexpr std::uint64_t kNever = 1;
  held->root = 0;
  held->started = kNever;
  for (auto& process : held->processes) {
    process.pid = 0;
    process.started = kNever;
  }
}

// A network whose path names a process is gone with that process, whichever process has its pid
// now.
void forget_networks_of_others(Held* held) {
  constexpr std::string_view kProcesses = "/proc/";
  if (!held->netns.starts_with(kProcesses)) return;
  const pid_t pid = std::atoi(held->netns.c_str() + kProcesses.size());
  if (pid == held->root && start_time(pid) == held->started) return;
  for (const auto& process : held->processes) {
    if (pid == process.pid && start_time(pid) == process.started) return;
  }
  held->netns = "/proc/0/ns/net";  // no process has this one
}

// For the receivers of the letters.
std::vector<Carrier::Connection> connections_of(const v1::LettersRequest& request) {
  std::set<std::pair<device::Letter::End, device::Letter::End>> ends;
  for (const auto& letter : request.letters())
    ends.emplace(name_of(letter.to()), name_of(letter.from()));
  std::vector<Carrier::Connection> connections;
  for (const auto& [to, from] : ends) connections.push_back({to, from});
  return connections;
}

}  // namespace

Daemon::Daemon(ThisHost& host, const Units& units, ControlServer& control, StandInHost& stand_ins,
               DecisionLog& decisions, const ImageRoom& room, CriuRunner& criu,
               Directory& directory, Whereabouts& whereabouts, Departures& departures,
               Arrivals& arrivals, Custody& custody, Carrier& carrier, Attestor& attestor,
               MovedNames& moved_names, Accounts& accounts, const History& history,
               Detachments& detachments)
    : host_(host),
      units_(units),
      control_(control),
      stand_ins_(stand_ins),
      decisions_(decisions),
      room_(room),
      criu_(criu),
      directory_(directory),
      whereabouts_(whereabouts),
      departures_(departures),
      arrivals_(arrivals),
      custody_(custody),
      carrier_(carrier),
      attestor_(attestor),
      moved_names_(moved_names),
      accounts_(accounts),
      history_(history),
      detachments_(detachments),
      restarted_(host, arrivals, directory) {}

Daemon::~Daemon() {
  host_.stopping = true;
  {
    std::lock_guard lock(mutex_);
    ended_.notify_all();
  }
  if (housekeeper_.joinable()) housekeeper_.join();
}

// --- former ferryds

void Daemon::recover() {
  for (auto& [key, entry] : decisions_.entries()) {
    try {
      if (entry.held && entry.held->boot != stamp_now().boot) forget_processes(&*entry.held);
      if (entry.held) forget_networks_of_others(&*entry.held);
      recover(key.first, key.second, entry);
    } catch (const std::exception& failure) {
      log::error("cannot take up move {:016x} of a former ferryd: {}", key.first, failure.what());
    }
  }
  accounts_.end_forgotten([&](Side side, std::uint64_t id) {
    if (side == Side::kDestination) return arrivals_.find(id) != nullptr;
    return departures_.former(id) != nullptr || custody_.is_kept(id);
  });
  units_.clear_up_arrivals();
  housekeeper_ = std::thread([this] { keep_house(); });
  std::lock_guard lock(mutex_);
  recovered_ = true;
  ended_.notify_all();
}

void Daemon::recover(std::uint64_t move_id, Side side, const Journal::Entry& entry) {
  if (side == Side::kSource) {
    if (entry.over) return departures_.keep_origins(move_id, entry);
    if (custody_.recover(move_id, entry)) return;
    if (!departures_.former(move_id)) departures_.take_up(move_id, entry);
    return;
  }
  if (!DestinationDecision::recovered(entry.decision()).committed()) {
    return decisions_.forget(move_id, side);
  }
  if (!entry.held || entry.over) return;
  const auto arrival = arrivals_.take_up(move_id, *entry.held);
  for (const auto& process : control_.processes()) {
    if (arrival->has_process(process.pid)) {
      arrival->registered(innermost_pid(process.pid).value_or(process.pid));
    }
  }
}

void Daemon::await_recovery() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return recovered_ || host_.stopping; });
}

std::shared_ptr<FormerMove> Daemon::former(std::uint64_t move_id) {
  await_recovery();
  return departures_.former(move_id);
}

// --- other ferryds

// The name of the asking ferryd's host: what it says itself, if its certificate (`from`) agrees. Throws Failure.
static std::string asker(const std::string& said, const std::string& from) {
  if (!from.empty() && said != from) {
    throw Failure(
        fmt::format("refused: it calls itself '{}', and its certificate is of {}; start its ferryd "
                    "with --host {}",
                    printable(said), from, from));
  }
  return said;
}

void Daemon::need_same_version(const std::string& host, const std::string& version) const {
  if (version == host_.version) return;
  throw Failure(fmt::format("{} runs Ferry {}, {} runs Ferry {}; install the same on both",
                            host_.name, host_.version, host, version));
}

void Daemon::check(const v1::CheckRequest& request, const std::string& from,
                   v1::CheckReply* reply) {
  await_recovery();  // then no arrival at a former ferryd is in the way
  need_same_version(asker(request.host(), from), request.version());
  if (request.host() == host_.name) {
    throw Failure(fmt::format("'{}' is on {} already", request.program(), host_.name));
  }
  UnitKind& kind = units_.kind(request.kind());
  if (kind.needs_criu()) {
    if (const std::string problem = criu_.unusable(); !problem.empty()) throw Failure(problem);
  }
  const std::uint64_t needed =
      kImageFactor * (request.resident_bytes() + request.group_bytes()) + kHeadroom;
  if (const std::uint64_t free = room_.available(); needed > free) {
    throw Failure(fmt::format("not enough memory on {} for '{}'{}: {} MiB needed, {} MiB free",
                              host_.name, request.program(),
                              request.group_bytes() > 0 ? " and those that move with it" : "",
                              needed >> 20, free >> 20));
  }
  room_.need(request.image_bytes());
  kind.check_arrival(host_.name, request.program(), request.details());
  for (const auto& netdev : request.netdevs()) {
    if (::if_nametoindex(netdev.c_str()) == 0) {
      throw Failure(fmt::format("{} has no network interface {}, which '{}' uses", host_.name,
                                netdev, request.program()));
    }
  }
  for (const auto& device : request.kernel_devices()) {
    auto& answer = *reply->add_chosen_devices();
    answer.set_name(device.name());
    answer.set_there(choose_device(device));
  }
  if (request.has_rdma_cm())
    try_rdma_cm(host_.name, request.program(), from_message(request.rdma_cm()));
  if (request.has_stdio()) check_stdio_file(from_message(request.stdio()).file);
  const std::set<pid_t> ids{request.ids().begin(), request.ids().end()};
  if (const auto taken = find_taken(ids, host_.name, request.program(), host_.is_taken);
      !taken.empty()) {
    throw Failure(taken);
  }
}

std::shared_ptr<Arrival> Daemon::prepare(const v1::PrepareRequest& request,
                                         const std::string& from) {
  await_recovery();
  if (host_.stopping) throw Failure(fmt::format("the ferryd of {} is ending", host_.name));
  if (request.version() != host_.version || request.move_id() == 0) {
    throw Failure("malformed request");
  }
  return arrivals_.prepare(request, from);
}

std::shared_ptr<Arrival> Daemon::arrival(std::uint64_t move_id) {
  await_recovery();
  return arrivals_.find(move_id);
}

std::shared_ptr<Arrival> Daemon::arrival_from(std::uint64_t move_id, const std::string& from) {
  auto found = arrival(move_id);
  if (found) need_source(found->from(), from);
  return found;
}

Answer Daemon::commit(std::uint64_t move_id, const std::string& from, std::string* reason) {
  if (const auto found = arrival_from(move_id, from)) return found->commit(reason);
  if (custody_.is_restoring(move_id)) return Answer::kUnknown;
  // A ferryd that was restarted knows only committed arrivals: others are gone.
  *reason = "the program is not there any more";
  return answer_of_former(move_id);
}

Answer Daemon::abort(std::uint64_t move_id, const std::string& from) {
  await_recovery();
  if (const auto found = arrival_from(move_id, from)) return found->abort("the source gave up");
  return answer_of_former(move_id);
}

// The answer about an arrival at a former ferryd: an arrival that is not committed never will be.
Answer Daemon::answer_of_former(std::uint64_t move_id) {
  return DestinationDecision::recovered(decisions_.decision(move_id, Side::kDestination)).answer();
}

Answer Daemon::decision(std::uint64_t move_id) {
  await_recovery();
  if (const auto move = departures_.find(move_id)) return move->group().answer();
  if (const auto left = former(move_id)) return left->answer();
  return SourceDecision::recovered(decisions_.decision(move_id, Side::kSource)).answer();
}

v1::ClaimReply Daemon::claimed(const v1::ClaimRequest& request, const std::string& from) {
  await_recovery();
  const std::string by = asker(request.host(), from);
  need_same_version(by, request.version());
  return custody_.claimed(request.checkpoint(), by);
}

void Daemon::unclaimed(const v1::UnclaimRequest& request, const std::string& from) {
  await_recovery();
  custody_.unclaimed(request.checkpoint(), asker(request.host(), from));
}

void Daemon::taken(const v1::TakeRequest& request, const std::string& from) {
  await_recovery();
  const std::string by = asker(request.host(), from);
  directory_.met(request.ferryd(), from);
  custody_.taken(request, by);
}

// --- the control protocol

// A move has only one of its two sides on this host.
std::shared_ptr<UnderWay> Daemon::under_way(std::uint64_t move_id) {
  if (auto arriving = arrival(move_id)) return arriving;
  if (auto move = departures_.find(move_id)) return move;
  if (auto detached = detachments_.find(move_id)) return detached;
  return former(move_id);
}

agent::Done Daemon::pause_tree(pid_t root) {
  try {
    detachments_.need_attached(root);
    if (const auto move = departures_.move_of_root(root)) {
      return {0, "", move->pause_tree()};
    }
    return {0, "", custody_.stop(root)};
  } catch (const std::exception& failure) {
    return {EIO, failure.what(), ""};
  }
}

agent::Done Daemon::frozen(pid_t pid) {
  try {
    if (const auto move = departures_.move_of_process(pid)) {
      move->frozen();
    } else if (!custody_.frozen(pid)) {
      await_recovery();
      if (departures_.was_stopped_before(pid)) {
        throw Failure("the ferryd that had stopped this program is no more");
      }
    }
    return {};
  } catch (const std::exception& failure) {
    return {EIO, failure.what(), ""};
  }
}

agent::Done Daemon::dump_failed(pid_t pid) {
  if (const auto move = departures_.move_of_process(pid))
    move->dump_failed();
  else
    custody_.dump_failed(pid);
  return {};
}

// A container runtime restores an image that has this note: gives the move by which the image's program leaves or
// arrives; null: there is none.
std::shared_ptr<UnderWay> Daemon::move_of_note(const std::string& text) {
  await_recovery();
  const auto note = parse_note(text);
  auto move = note ? under_way(note->id) : nullptr;
  return move && move->is_checkpointed() ? move : nullptr;
}

agent::Done Daemon::claim(pid_t criu, const std::string& note) {
  if (const auto move = move_of_note(note)) {
    move->need_restorable();
    return {0, "", agent::kOfMove};
  }
  custody_.claim(criu, note);
  return {};
}

agent::Done Daemon::restore_failed(pid_t criu, const std::string& note) {
  if (!move_of_note(note)) custody_.restore_failed(criu, note);
  return {};
}

agent::Done Daemon::restored(const agent::Restored& process) {
  if (const auto move = move_of_note(process.note)) {
    const int code = move->restored(process.pid);
    return {code, code == 1 ? "its move was given up" : "", ""};
  }
  if (process.waits) {
    // The process arrived at a former ferryd, and was not committed. Its connections may go on at the source.
    silence(process.pid);
    return {1, "its move was given up", ""};
  }
  custody_.restored(process.pid, process.note);
  return {};
}

agent::Done Daemon::action(const agent::Action& action) {
  if (action.move_id == 0) return {};  // this CRIU was not started by a ferryd
  await_recovery();
  if (const auto move = under_way(action.move_id)) {
    return {move->action(action.name, action.pid), "", ""};
  }
  if (action.name == "post-restore") {
    return {answer_of_former(action.move_id) == Answer::kCommitted ? 0 : 1, "", ""};
  }
  if (action.name == "network-unlock") return join_network_again(action.pid);
  if (action.name != "post-dump") return {};
  const auto recovered =
      SourceDecision::recovered(decisions_.decision(action.move_id, Side::kSource));
  if (!recovered.decided()) return {EAGAIN, "", ""};
  return {recovered.committed() ? 0 : 1, "", ""};
}

// A former ferryd has called the network hook's `hold` for this container. That `hold` may have ended after this
// ferryd's `activate`.
agent::Done Daemon::join_network_again(pid_t root) {
  try {
    units_.join_network_again(root);
  } catch (const Failure& failure) {
    return {1, failure.what(), ""};
  }
  return {};
}

// False when this move is under way and `pid` is no process of its program. A move's id is no secret: it names CRIU's
// image folder, and every user sees that name.
bool Daemon::is_of_move(pid_t pid, std::uint64_t move_id) {
  const auto move = under_way(move_id);
  return !move || move->has_process(pid);
}

WakeUp Daemon::awake(pid_t pid, const agent::Awake& awake) {
  WakeUp answer = decide(pid, awake);
  if (!answer.resume) return answer;
  const auto& contexts = answer.resume->contexts;
  whereabouts_.arrived(pid, contexts, answer.resume->rollback);
  const bool brings_gids = !answer.resume->rollback &&
                           std::any_of(contexts.begin(), contexts.end(),
                                       [](const auto& context) { return !context.names.empty(); });
  if (brings_gids) moved_names_.arrived();
  return answer;
}

WakeUp Daemon::decide(pid_t pid, const agent::Awake& awake) {
  const pid_t inner = innermost_pid(pid).value_or(pid);
  WakeUp answer;
  if (!is_of_move(pid, awake.move_id)) {
    answer.retry_ms = 1000;
    warn_of(pid, "process {} asks for the sockets of move {:016x}, which is not its own", pid,
            awake.move_id);
  } else if (const auto move = under_way(awake.move_id)) {
    answer.resume = move->wake(inner);
  } else {
    await_recovery();
    if (auto decided = custody_.awake(pid, awake.move_id)) return std::move(*decided);
    answer.retry_ms = 1000;
    warn_of(pid, "process {} woke up from move {:016x}, which this ferryd does not know", pid,
            awake.move_id);
  }
  return answer;
}

void Daemon::resumed(pid_t pid, const agent::Resumed& resumed) {
  if (!is_of_move(pid, resumed.move_id)) return;
  const pid_t inner = innermost_pid(pid).value_or(pid);
  if (resumed.error > 0) {
    warn_of(pid, "process {} cannot use its sockets: {}", pid, error_text(resumed.error));
  } else if (resumed.error < 0) {
    warn_of(pid, "process {} has lost an ID of rdma_cm, which this host refuses: {}", pid,
            error_text(-resumed.error));
  }
  if (const auto move = under_way(resumed.move_id)) return move->resumed(inner, resumed);
  custody_.resumed(pid, resumed.move_id);
}

void Daemon::peers_know(pid_t pid, const agent::PeersKnow& peers) {
  if (!is_of_move(pid, peers.move_id)) return;
  const auto arriving = arrival(peers.move_id);
  if (arriving) arriving->peers_know(innermost_pid(pid).value_or(pid), peers);
}

void Daemon::registered(pid_t pid) {
  moved_names_.registered(pid);
  custody_.registered(pid);
  arrivals_.registered(pid);
  departures_.registered(pid);
  detachments_.registered(pid);
}

void Daemon::datagram_qps(pid_t pid, const std::vector<device::DatagramQps>& contexts) {
  moved_names_.datagram_qps(pid, contexts);
}

void Daemon::letters(pid_t pid, agent::Letters letters) {
  try {
    attestor_.need_trusted(pid);
  } catch (const Failure& failure) {
    warn_of(pid, "letters of process {} are dropped: {}", pid, failure.what());
    return;
  }
  carrier_.send(pid, std::move(letters.letters));
}

v1::LettersReply Daemon::letters(const v1::LettersRequest& request, const std::string& from) {
  asker(request.host(), from);
  const Carrier::Ferryd sender{request.ferryd(), request.host()};
  if (!request.only_ask() && !attestor_.trusts(sender, connections_of(request))) {
    v1::LettersReply reply;
    reply.mutable_errors()->Resize(request.letters_size(), EACCES);
    return reply;
  }
  return carrier_.receive(request);
}

v1::MovedNamesReply Daemon::moved_names(const v1::MovedNamesRequest& request,
                                        const std::string& from) {
  asker(request.host(), from);
  carrier_.met({request.ferryd(), request.host()});
  return moved_names_.receive(request);
}

void Daemon::locate(pid_t pid, const agent::Locate& question) {
  whereabouts_.locate(pid, question);
}

// --- housekeeping

void Daemon::keep_house() {
  std::unique_lock lock(mutex_);
  while (!host_.stopping) {
    ended_.wait_for(lock, milliseconds(200));
    lock.unlock();
    departures_.keep_house();
    arrivals_.keep_house();
    reap_orphans();
    custody_.keep_house();
    lock.lock();
  }
}

}  // namespace ferry::host
