#include "host/move/several/lead.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/together.h"
#include "ferry.pb.h"
#include "host/journal/decision_log.h"
#include "host/move/source/together.h"
#include "host/peers/this_host.h"

namespace ferry::host {

SeveralMove::SeveralMove(const ThisHost& host, Parts parts)
    : host_(host), parts_(std::move(parts)) {}

void SeveralMove::look() {
  std::map<const MovePart*, MovePart::Look> looks;
  for (const auto& part : parts_) looks[part.get()];
  const auto need_go_on = [this] { need_to_stay(host_); };
  together(parts_, need_go_on, [&](MovePart& part) { looks.at(&part) = part.look(); });
  // Nothing of the job can move there.
  std::erase_if(parts_, [&](const auto& part) { return looks.at(part.get()).programs.empty(); });
  if (parts_.empty()) throw Failure("no program of the job uses RDMA; see: ferry ps --job");
  std::set<std::string> hosts;
  std::lock_guard lock(mutex_);
  for (const auto& part : parts_) {
    members_.push_back({part.get(), std::move(looks.at(part.get()))});
    const auto& look = members_.back().look;
    move_ids_.insert(look.move_ids.begin(), look.move_ids.end());
    if (hosts.insert(look.host).second) continue;
    throw Failure(look.host + " is named in two ways: name it once");
  }
  id_ = new_move_id();
}

std::size_t SeveralMove::programs() const {
  std::size_t sum = 0;
  for (const auto& member : members_) sum += member.look.programs.size();
  return sum;
}

Others SeveralMove::others(const MovePart* part) const {
  Others others;
  others.group = id_;
  for (const auto& [each, look] : members_) {
    others.sources.push_back({look.host, static_cast<std::uint32_t>(look.programs.size())});
    if (each == part) {
      others.here = others.sources.size() - 1;
    } else {
      others.weight.resident_bytes += look.weight.resident_bytes;
      others.weight.image_bytes += look.weight.image_bytes;
    }
  }
  return others;
}

// "'a' and 'b' on h1, 'c' on h2".
std::string SeveralMove::names() const {
  std::string text;
  for (const auto& member : members_) {
    const auto& names = member.look.programs;
    if (!text.empty()) text += ", ";
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (i > 0) text += i + 1 < names.size() ? ", " : " and ";
      text += fmt::format("'{}'", names[i]);
    }
    text += " on " + member.look.host;
  }
  return text;
}

v1::GroupPlan SeveralMove::plan() {
  look();
  std::map<const MovePart*, v1::GroupPlan> plans;
  std::map<const MovePart*, std::string> failures;
  for (const auto& part : parts_) {
    plans[part.get()];
    failures[part.get()];
  }
  in_parallel(parts_, [&](const auto& part) {
    try {
      plans.at(part.get()) = part->plan(others(part.get()));
    } catch (const Failure& failure) {
      failures.at(part.get()) = failure.what();
    }
  });
  v1::GroupPlan all;
  std::string failure;
  for (const auto& [part, look] : members_) {
    all.set_from(all.from() + (all.from().empty() ? "" : ", ") + look.host);
    all.set_to(plans.at(part).to());
    all.mutable_programs()->MergeFrom(plans.at(part).programs());
    if (failures.at(part).empty()) continue;
    failure += (failure.empty() ? "" : "; ") + failures.at(part);
  }
  if (!failure.empty()) throw Failure(failure);
  return all;
}

v1::GroupReport SeveralMove::run() {
  look();
  const auto need_go_on = [this] { need_to_stay(host_); };
  try {
    together(parts_, need_go_on, [this](MovePart& part) { part.check(others(&part)); });
    together(parts_, need_go_on, [](MovePart& part) { part.prepare(); });
    together(parts_, need_go_on, [](MovePart& part) { part.copy(); });
    together(parts_, need_go_on, [](MovePart& part) { part.suspend(); });
  } catch (const NotMoved& failure) {
    fail(failure.reason());
  } catch (const std::exception& failure) {
    fail(failure.what());
  }
  return finish();
}

v1::GroupReport SeveralMove::finish() {
  std::map<const MovePart*, v1::GroupReport> reports;
  for (const auto& part : parts_) reports[part.get()];
  try {
    await_ends([&](MovePart& part) { reports.at(&part) = part.finish(); });
  } catch (const NotMoved& failure) {
    fail(failure.reason());
  } catch (const std::exception& failure) {
    throw Failure(fmt::format("{}; whether {} have moved, their hosts know: ferry history",
                              failure.what(), names()));
  }
  v1::GroupReport all;
  for (const auto& [part, look] : members_) {
    const auto& report = reports.at(part);
    all.set_from(all.from() + (all.from().empty() ? "" : ", ") + look.host);
    all.set_to(report.to());
    all.set_blackout_ms(std::max(all.blackout_ms(), report.blackout_ms()));
    all.mutable_programs()->MergeFrom(report.programs());
  }
  return all;
}

// Nobody is given up: from now on each host and the destination decide. Throws what the first one has thrown.
void SeveralMove::await_ends(const std::function<void(MovePart&)>& finish) {
  constexpr std::chrono::milliseconds kLook{20};
  auto all = std::async(std::launch::async,
                        [&] { in_parallel(parts_, [&](const auto& part) { finish(*part); }); });
  while (all.wait_for(kLook) != std::future_status::ready) {
    if (!host_.stopping) continue;
    for (const auto& part : parts_) part->stop_waiting();
    break;
  }
  all.get();
}

// Returns when no program of any host is on its way any more.
void SeveralMove::end_all() {
  in_parallel(parts_, [](const auto& part) {
    try {
      part->end();
    } catch (const Failure& failure) {
      log::warn("after a move of programs of several hosts has failed: {}", failure.what());
    }
  });
}

void SeveralMove::fail(const std::string& reason) {
  end_all();
  throw NotMoved(names(), programs() > 1, is_given_up_ ? "it was given up" : reason);
}

bool SeveralMove::give_up(std::uint64_t move_id) {
  std::lock_guard lock(mutex_);
  if (!move_ids_.contains(move_id)) return false;
  is_given_up_ = true;
  for (const auto& part : parts_) part->give_up();
  return true;
}

SeveralMoves::Entry::Entry(SeveralMoves& all, SeveralMove& move) : all_(all), move_(move) {
  std::lock_guard lock(all_.mutex_);
  all_.moves_.insert(&move_);
}

SeveralMoves::Entry::~Entry() {
  std::lock_guard lock(all_.mutex_);
  all_.moves_.erase(&move_);
}

bool SeveralMoves::give_up(std::uint64_t move_id) {
  std::lock_guard lock(mutex_);
  return std::any_of(moves_.begin(), moves_.end(),
                     [&](SeveralMove* move) { return move->give_up(move_id); });
}

}  // namespace ferry::host
