#include "host/move/source/move.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "device/parcel.h"
#include "ferry.pb.h"
#include "host/image/image_room.h"
#include "host/image/late_pages.h"
#include "host/move/slots_message.h"
#include "host/move/source/image_way.h"
#include "host/move/source/kernel/wanted_devices.h"
#include "host/peers/this_host.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/process_ids.h"
#include "host/proc/process_tree.h"
#include "host/units/obstacles.h"
#include "host/units/rdma_cm_trial.h"
#include "port/address_text.h"
#include "precopy/tracker.h"

// The part of Move before the stop: whether the program could move, and what the destination makes ready.
namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLatePagesLimit{60};  // for programs that have come to have all of their pages
constexpr seconds kHelloLimit{5};       // for a new peer to say of what kind it is
// Bytes; with less, copying ahead does not shorten the stop.
constexpr std::uint64_t kWorthCopying = 16 << 20;
constexpr std::chrono::hours kLongestLimited{24};  // of copying ahead at the user's rate

void to_message(const MoveGroup& group, std::size_t program, v1::Group* message) {
  message->set_id(group.id());
  std::size_t programs = group.programs().size();
  if (const auto& others = group.others()) {
    program += others->before(others->here);
    programs = others->before(others->sources.size());
    for (const auto& source : others->sources) {
      auto* added = message->add_sources();
      added->set_host(source.host);
      added->set_programs(source.programs);
    }
  }
  message->set_programs(static_cast<std::uint32_t>(programs));
  message->set_program(static_cast<std::uint32_t>(program));
}

}  // namespace

bool Move::copies_ahead(std::uint64_t bytes) const {
  if (unit_.is_checkpointed() || !unit_.needs_criu()) return false;
  switch (options_.copy_ahead) {
    case MoveOptions::Ahead::kAlways: return true;
    case MoveOptions::Ahead::kNever: return false;
    default:
      return options_.limits.max_blackout_ms > 0 ||
             (bytes >= kWorthCopying && precopy::can_track());
  }
}

void Move::check_here_and_there() {
  if (unit_.needs_criu()) {
    if (const std::string problem = side_.criu.unusable(); !problem.empty()) throw Failure(problem);
  }
  unit_.need_movable();
  const auto deadline = Clock::now() + kLatePagesLimit;
  for (const auto& program : group_->programs()) {
    LatePages(host_).wait(program.unit->name(), program.unit->root(), deadline,
                          [this] { need_go_on(); });
  }
  v1::CheckRequest request;
  request.set_version(host_.version);
  request.set_host(host_.name);
  request.set_program(unit_.name());
  request.set_kind(unit_.kind());
  request.set_details(unit_.details());
  const Weight all = weight();
  // Of what needs no CRIU the other host looks for the room by details().
  const std::uint64_t bytes = unit_.needs_criu() ? resident_bytes_of_tree(unit_.root()) : 0;
  request.set_resident_bytes(bytes);
  request.set_group_bytes(all.resident_bytes - std::min(bytes, all.resident_bytes));
  // A group has one decision: its programs wait for each other.
  const auto contexts =
      check_peers(expected_waiting(request.resident_bytes() + request.group_bytes()));
  partners_.look(unit_.name(), unit_.root(), program_.processes, !unit_.netns().empty());
  const bool has_own_mounts =
      namespace_inode(unit_.root(), "mnt") != namespace_inode(::getpid(), "mnt");
  std::set<std::string> used;
  for (const auto& [name, needs] : partners_.devices()) used.insert(name);
  auto wanted = wanted_devices(unit_.name(), options_.to_devices, used);
  for (const auto& [name, needs] : partners_.devices()) {
    auto& device = *request.add_kernel_devices();
    device.set_name(name);
    device.set_wanted(wanted[name]);
    device.set_needs(needs);
    // A container's /dev comes along as it is.
    if (const auto node = node_of(name); node && has_own_mounts) device.set_node(to_string(*node));
  }
  if (const auto& rdma_cm = partners_.rdma_cm()) {
    need_devices_of_kernel(unit_.name(), wanted);
    to_message(*rdma_cm, request.mutable_rdma_cm());
  }
  std::set<std::string> netdevs;
  for (const auto& context : contexts) {
    if (device::device_behind(context.place).empty()) netdevs.insert(printable(context.netdev));
    qps_ += context.qps.size();
  }
  if (unit_.netns().empty()) {
    for (const auto& netdev : netdevs) request.add_netdevs(netdev);
  }
  request.set_image_bytes(all.image_bytes);
  const std::uint64_t elsewhere = group_->others() ? group_->others()->weight.image_bytes : 0;
  if (!unit_.is_checkpointed()) side_.room.need(all.image_bytes - elsewhere);
  for (const auto& file : unit_.needed_files()) request.add_files(file);
  if (unit_.needs_criu()) {
    for (const pid_t id : ids_of_host(unit_.root())) request.add_ids(id);
  }
  if (const auto file = unit_.redirects_to(user_)) {
    to_message({*file, {}}, request.mutable_stdio());
  }
  if (options_.cut) {
    if (!partners_.devices().empty()) {
      throw Failure(no_checkpoint(unit_.name(), partners_.devices().begin()->first));
    }
    checked_ = std::make_shared<const v1::CheckRequest>(request);
    return;
  }
  v1::CheckReply reply;
  peer_.call(request, &reply, seconds(30));
  host_there_ = reply.host();
  for (const auto& chosen : reply.chosen_devices()) chosen_devices_[chosen.name()] = chosen.there();
  if (reply.missing_files().empty()) return;
  // Files that were open for a moment only are not needed.
  const auto files = unit_.needed_files();
  for (const auto& file : reply.missing_files()) {
    if (!files.contains(file)) continue;
    throw Failure(missing_file(peer_.name(), file, unit_.name()));
  }
}

v1::MovePlan Move::plan() {
  check_here_and_there();
  const std::uint64_t bytes = resident_bytes_of_tree(unit_.root());
  v1::MovePlan plan;
  plan.set_program(unit_.name());
  plan.set_from(host_.name);
  plan.set_to(peer_.name());
  plan.set_copies_ahead(copies_ahead(bytes) || !unit_.needs_criu());
  const auto waiting = expected_waiting(plan.copies_ahead() ? 0 : bytes);
  plan.set_blackout_ms(static_cast<double>(waiting.blackout.count()));
  if (plan.copies_ahead() || bytes < kWorthCopying) {
    const auto expected = side_.accounts.expected_stop(unit_.name(), host_there_);
    plan.set_expected_ms(std::min(expected.time.count(), plan.blackout_ms()));
    plan.set_measured_moves(static_cast<std::uint32_t>(expected.moves));
  }
  plan.set_memory_bytes(bytes);
  plan.set_qps(static_cast<std::uint32_t>(qps_));
  plan.set_standard_peers(static_cast<std::uint32_t>(standard_peers_));
  return plan;
}

// Into images goes the memory of the programs that are not copied ahead. What a checkpoint copies ahead stays here.
Weight Move::weight() const {
  Weight sum = group_->others() ? group_->others()->weight : Weight();
  for (const auto& program : group_->programs()) {
    if (!program.unit->needs_criu()) continue;
    const std::uint64_t bytes = resident_bytes_of_tree(program.unit->root());
    sum.resident_bytes += bytes;
    if (!options_.cut && copies_ahead(bytes)) continue;
    if (program.unit->is_checkpointed()) {
      sum.image_bytes += bytes;  // the runtime adds files of its own
      continue;
    }
    for (const pid_t pid : process_tree(program.unit->root())) {
      sum.image_bytes += anonymous_bytes(pid);
    }
  }
  return sum;
}

// Refuses peers that speak no migration messages, unless the address moves along and they are
// patient: they cannot learn a new address. Gives the contexts that it has looked at.
std::vector<agent::ContextStatus> Move::check_peers(const Waiting& expected) {
  const auto deadline = Clock::now() + kHelloLimit;
  auto contexts = contexts_of(side_.control, program_.processes);
  auto peers = peers_of(contexts);
  while (!peers.undecided.empty() && Clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(20));
    contexts = contexts_of(side_.control, program_.processes);
    peers = peers_of(contexts);
  }
  auto& standard = peers.standard;
  standard.insert(standard.end(), peers.undecided.begin(), peers.undecided.end());
  standard_peers_ = standard.size();
  if (standard.empty()) return contexts;
  if (unit_.is_checkpointed()) {
    if (options_.force) return contexts;
    throw Failure(
        fmt::format("{} speaks no migration messages, and may give up while {} is at work; move it "
                    "with --force all the same",
                    peer_text(standard.front()), unit_.kind()));
  }
  if (!unit_.rdma_moves()) {
    throw Failure(fmt::format(
        "{} speaks no migration messages and the address {} cannot move along: it belongs to the "
        "host; move programs whose RDMA address is their container's own, or try again when the "
        "peer is connected",
        peer_text(standard.front()), to_string(standard.front().local.address)));
  }
  if (const auto line = impatient(standard, expected); !line.empty()) {
    if (!options_.force) throw Failure(line);
    log::warn("'{}' moves all the same: {}", unit_.name(), line);
  }
  kept_ = places_to_keep(contexts);
  return contexts;
}

void Move::await_peers() {
  partners_.await_peers(unit_.root(), [this] { need_go_on(); });
}

void Move::make_folder() const {
  std::error_code error;
  std::filesystem::create_directories(images_, error);
  if (error) throw Failure(fmt::format("cannot make {}: {}", images_, error.message()));
  std::filesystem::permissions(images_, std::filesystem::perms::owner_all, error);
}

void Move::prepare_there() {
  make_folder();
  const bool ahead = copies_ahead(resident_bytes_of_tree(unit_.root()));
  if (options_.cut) {
    unit_.leave();
    if (!ahead) return;
    kept_memory_ = std::make_shared<precopy::PageStore>(side_.room.available());
    keeper_.emplace(*kept_memory_);
    return begin_copy_ahead();
  }
  v1::PrepareRequest request;
  request.set_move_id(move_id_);
  request.set_program(unit_.name());
  request.set_version(host_.version);
  request.set_source(host_.address);
  request.set_kind(unit_.kind());
  request.set_details(unit_.details());
  for (const auto& process : program_.processes) {
    request.add_inner_pids(innermost_pid(process.pid).value_or(process.pid));
  }
  for (const auto& context : kept_) to_message(context, request.add_kept());
  for (const auto& partner : partners_.ferryds()) {
    auto* added = request.add_partners();
    added->set_host(partner.host);
    added->set_ferryd(partner.address);
  }
  for (const auto& [name, there] : chosen_devices_) {
    auto* added = request.add_chosen_devices();
    added->set_name(name);
    added->set_there(there);
  }
  if (!group_->is_alone()) to_message(*group_, index_, request.mutable_group());
  request.set_copy_ahead(ahead);
  unit_.leave();
  is_prepared_ = true;  // also when the answer gets lost
  v1::PrepareReply reply;
  peer_.call(request, &reply, seconds(60));
  open_image_way(peer_, reply, host_.credentials, &sender_);
  if (!unit_.needs_criu()) program_.unit->meet(reply.meeting_point());
  if (const auto rootfs = unit_.copied_rootfs()) {
    rootfs_.emplace(host_.rootfs_helper, unit_.root(), *rootfs, images_ + "/" + kRootfsLog);
  }
  if (ahead) begin_copy_ahead();
}

void Move::begin_copy_ahead() {
  CopyAhead::Settings settings;
  settings.sharers = &group_->copying();
  settings.pace.rate = options_.limits.rate;
  if (settings.pace.rate > 0) settings.planner.longest = kLongestLimited;
  settings.planner.stop = side_.accounts.expected_stop(unit_.name(), host_there_).time;
  if (options_.limits.max_blackout_ms > 0) {
    settings.planner.blackout =
        precopy::PlannerSettings::Milliseconds(options_.limits.max_blackout_ms);
  }
  ahead_.emplace(side_.control, unit_.root(), settings);
}

}  // namespace ferry::host
