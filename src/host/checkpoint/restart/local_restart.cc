#include "host/checkpoint/restart/local_restart.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/checkpoint/own_folder.h"
#include "host/directory/directory.h"
#include "host/image/image_stream.h"
#include "host/journal/decision_log.h"
#include "host/move/destination/arrivals.h"
#include "host/move/slots_message.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "host/proc/addresses.h"
#include "host/proc/process_tree.h"
#include "host/units/obstacles.h"
#include "precopy/pages_index.h"

namespace ferry::host {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kRestartGivenUp[] = "the restart is given up";
constexpr std::chrono::milliseconds kNoticed{1500}, kLook{50};

// True when this host has the addresses that the program had. Then it gets its places back, and its peers find it
// there; in others it is found by the directory.
bool is_at_home(const ContextSlots& context, const InterfaceAddresses& here) {
  return std::all_of(context.slots.begin(), context.slots.end(), [&](const rnic::Slot& slot) {
    return here.contains({context.netdev, slot.local.address});
  });
}

// True when an RNIC of the program is on this host, by what this host tells others. That one has ended is noticed a
// moment later (Whereabouts).
bool is_here(const ThisHost& host, const Facts& facts, const Directory& directory) {
  const auto is_told = [&](const rnic::Slot& slot) {
    const auto place = directory.told(slot.origin);
    return place && !place->ended && place->ferryd == host.address;
  };
  const auto until = Clock::now() + kNoticed;
  for (bool is_any = true; is_any && Clock::now() < until; std::this_thread::sleep_for(kLook)) {
    is_any = false;
    for (const auto& process : facts.places) {
      for (const auto& context : process.contexts) {
        is_any = is_any || std::any_of(context.slots.begin(), context.slots.end(), is_told);
      }
    }
    if (!is_any) return false;
  }
  return true;
}

// Waits until the program says that it goes on. Gives an empty string, or why it does not.
std::string await_resumed(Arrival& arrival, Clock::time_point until) {
  for (;;) {
    const auto left = until - Clock::now();
    const auto event =
        arrival.next_event(std::chrono::duration_cast<std::chrono::milliseconds>(left));
    if (event && event->has_resumed()) return {};
    if (event && event->failed().empty()) continue;
    return fmt::format("'{}' is restored, and does not go on: {}", arrival.program(),
                       event ? event->failed() : "no sign of it");
  }
}

}  // namespace

std::string what_runs(const ThisHost& host, const Facts& facts, const Arrivals& arrivals,
                      const Directory& directory, bool force) {
  const auto runs = [&](const std::string& what) {
    return fmt::format("'{}' still runs on {}, as {}:", printable(facts.check.program()), host.name,
                       what);
  };
  const auto arrival = arrivals.find(facts.move_id);
  if (arrival && !arrival->is_over()) {
    return runs(arrival->root() == 0 ? "a restart" : fmt::format("process {}", arrival->root()));
  }
  // It may have come here by a move, or from a later checkpoint.
  if (!force && is_here(host, facts, directory)) return runs("a program that has come here since");
  if (facts.boot != stamp_now().boot) return {};
  for (const auto& [pid, started] : facts.processes) {
    if (start_time(pid) == started && is_alive(pid)) return runs(fmt::format("process {}", pid));
  }
  return {};
}

LocalRestart::LocalRestart(const ThisHost& host, Arrivals& arrivals, const Directory& directory,
                           Check check, store::Checkpoint checkpoint,
                           const std::vector<std::uint32_t>& programs,
                           std::vector<PeerRecord> hosts, bool force, TellBytes tell)
    : host_(host),
      arrivals_(arrivals),
      directory_(directory),
      check_(std::move(check)),
      checkpoint_(std::move(checkpoint)),
      hosts_(std::move(hosts)),
      force_(force),
      tell_(std::move(tell)) {
  const auto& all = checkpoint_.manifest().programs;
  if (programs.empty()) throw Failure("malformed request");
  for (const auto number : programs) {
    if (number >= all.size()) throw Failure("malformed request");
    parts_.push_back({number, parse_facts(all[number].facts, all[number].name), nullptr});
  }
}

LocalRestart::~LocalRestart() {
  if (is_decided_) return;
  for (const auto& part : parts_) {
    if (part.arrival) part.arrival->abort(kRestartGivenUp);
  }
}

// What is read looks by itself; what CRIU restores ends with its arrival.
void LocalRestart::give_up() {
  is_given_up_ = true;
  std::unique_lock lock(mutex_);
  const auto arrivals = restoring_;
  lock.unlock();
  for (const auto& arrival : arrivals) arrival->abort(kRestartGivenUp);
}

void LocalRestart::check() {
  const std::string& id = checkpoint_.manifest().id;
  for (const auto& part : parts_) {
    auto request = part.facts.check;
    if (const auto running = what_runs(host_, part.facts, arrivals_, directory_, force_);
        !running.empty()) {
      throw Failure(running + " end it before it is restarted");
    }
    if (request.version() != host_.version) {
      throw Failure(fmt::format(
          "checkpoint {} was made by Ferry {}, and {} has Ferry {}: restart it with that version",
          id, printable(request.version()), host_.name, host_.version));
    }
    request.set_host("checkpoint " + id);
    check_(request);
    const auto missing = missing_files({request.files().begin(), request.files().end()});
    if (!missing.empty()) {
      throw Failure(missing_file(host_.name, missing.front(), request.program()));
    }
  }
}

v1::PrepareRequest LocalRestart::prepare_request(std::size_t index,
                                                 const InterfaceAddresses& here) const {
  const Facts& facts = parts_[index].facts;
  v1::PrepareRequest request;
  request.set_move_id(facts.move_id);
  request.set_program(facts.check.program());
  request.set_version(host_.version);
  request.set_source(host_.address);
  request.set_kind(facts.check.kind());
  request.set_details(facts.check.details());
  const auto& files = files_of(parts_[index]);
  request.set_copy_ahead(std::any_of(files.begin(), files.end(), [](const store::ImageFile& file) {
    return precopy::process_of_index_file(file.name).has_value();
  }));
  for (const auto& place : facts.places) {
    request.add_inner_pids(place.inner_pid);
    for (const auto& context : place.contexts) {
      if (is_at_home(context, here)) to_message(context, request.add_kept());
    }
  }
  for (const auto& host : hosts_) {
    auto& partner = *request.add_partners();
    partner.set_host(host.name);
    partner.set_ferryd(host.address);
  }
  if (parts_.size() > 1) {
    request.mutable_group()->set_id(parts_.front().facts.move_id);
    request.mutable_group()->set_programs(static_cast<std::uint32_t>(parts_.size()));
    request.mutable_group()->set_program(static_cast<std::uint32_t>(index));
  }
  return request;
}

void LocalRestart::need_wanted() const {
  if (is_given_up_) throw Failure(kRestartGivenUp);
}

const std::vector<store::ImageFile>& LocalRestart::files_of(const Part& part) const {
  return checkpoint_.manifest().programs[part.program].files;
}

Failure LocalRestart::damaged(const Part& part, const std::string& how) const {
  return Failure(fmt::format("the image of '{}' in checkpoint {} is damaged: {}",
                             printable(part.facts.check.program()), checkpoint_.manifest().id,
                             printable(how)));
}

// The pages that the program had, by the files that have them.
std::map<precopy::Layer, precopy::PageRanges> LocalRestart::wanted_pages(const Part& part) const {
  std::map<precopy::Layer, precopy::PageRanges> wanted;
  const auto& files = files_of(part);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto process = precopy::process_of_index_file(files[i].name);
    if (!process) continue;
    std::vector<std::byte> content;
    checkpoint_.read_file(part.program, i, [&](std::span<const std::byte> piece) {
      content.insert(content.end(), piece.begin(), piece.end());
    });
    const auto index = precopy::PagesIndex::parse(content, files[i].name);
    if (index.layers() > files.size()) throw damaged(part, "it lacks files with memory");
    for (std::uint32_t layer = 0; layer < index.layers(); ++layer) {
      wanted[{*process, layer}] = index.of_layer(layer);
    }
  }
  return wanted;
}

void LocalRestart::begin_arrival(std::size_t index, const InterfaceAddresses& here) {
  auto& arrival = parts_[index].arrival;
  arrival = arrivals_.prepare_restart(prepare_request(index, here));
  std::lock_guard lock(mutex_);
  restoring_.push_back(arrival);
}

// Bytes of images that are read.
void LocalRestart::count(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  read_.done += bytes;
  if (tell_) tell_(read_);
}

void LocalRestart::send_image(const Part& part) {
  const Peer here(host_.address, host_.credentials, host_.name);
  ImageSender sender(here.address(), arrivals_.image_port(), part.arrival->token(),
                     host_.credentials, host_.name);
  const auto& files = files_of(part);
  std::map<std::size_t, precopy::PagesReader> memory;
  const auto wanted = wanted_pages(part);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto layer = precopy::layer_of_pages_file(files[i].name);
    if (!layer && precopy::has_name_of_pages(files[i].name)) {
      throw damaged(part, files[i].name + " has no layer");
    }
    if (!layer) continue;
    const auto pages = wanted.find(*layer);
    if (pages == wanted.end()) throw damaged(part, files[i].name + " is in no index");
    memory.try_emplace(i, *layer, pages->second, sender);
  }
  if (memory.size() != wanted.size()) throw damaged(part, "it lacks files with memory");
  checkpoint_.read_image(part.program, [&](std::size_t file, std::span<const std::byte> piece) {
    need_wanted();
    count(piece.size());
    const auto pages = memory.find(file);
    if (pages != memory.end()) return pages->second.add(piece);
    if (precopy::process_of_index_file(files[file].name)) return;
    sender.send_piece(files[file].name, files[file].mode, piece);
  });
  for (const auto& [file, pages] : memory) pages.end();
  part.arrival->bind(part.facts.places);
  sender.send({});
}

// The files that the programs write to, as long as they were. All are looked at before one is cut back.
void LocalRestart::cut_back_files() {
  std::vector<LaterFile> files;
  for (const auto& part : parts_) {
    for (const auto& written : part.facts.written) files.emplace_back(written);
  }
  for (const auto& file : files) {
    if (auto kept = file.cut_back(".ferry-" + checkpoint_.manifest().id); !kept.empty()) {
      kept_aside_.push_back(std::move(kept));
    }
  }
}

std::string LocalRestart::with_kept_aside(const std::string& failure) const {
  std::string text;
  for (const auto& file : kept_aside_) {
    text += (text.empty() ? "; what was written after the checkpoint is in " : ", ") + file;
  }
  return failure + text;
}

std::vector<std::string> LocalRestart::restore() {
  try {
    const auto here = addresses_of_interfaces();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      begin_arrival(i, here);
      for (const auto& file : files_of(parts_[i])) read_.total += file.bytes;
    }
    count(0);
    in_parallel(parts_, [&](const Part& part) { send_image(part); });
    need_wanted();
    // CRIU looks at files when all is on this host, and nothing has begun.
    cut_back_files();
    in_parallel(parts_,
                [&](const Part& part) { part.arrival->restore(host_.limits.restore, {}, false); });
    std::lock_guard lock(mutex_);
    restoring_.clear();
  } catch (const std::exception& failure) {
    for (const auto& part : parts_) {
      if (part.arrival) part.arrival->abort(failure.what());
    }
    throw Failure(with_kept_aside(failure.what()));
  }
  return kept_aside_;
}

void LocalRestart::go_on() {
  std::string reason;
  if (parts_.front().arrival->commit(&reason) != Answer::kCommitted) {
    throw Failure(with_kept_aside(reason));
  }
  is_decided_ = true;
  std::string failures;
  const auto until = Clock::now() + host_.limits.resume;
  for (const auto& part : parts_) {
    const std::string failure = await_resumed(*part.arrival, until);
    if (!failure.empty()) failures += (failures.empty() ? "" : "; ") + failure;
  }
  if (!failures.empty()) throw Failure(with_kept_aside(failures));
}

}  // namespace ferry::host
