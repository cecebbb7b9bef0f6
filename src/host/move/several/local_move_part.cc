#include "host/move/several/local_move_part.h"

#include <utility>

#include "base/failure.h"
#include "ferry.pb.h"

namespace ferry::host {

LocalMovePart::LocalMovePart(const std::string& host, Departures& departures, uid_t user,
                             std::vector<MoveGroup::Program> programs, std::string to,
                             MoveOptions options, Move::Progress progress)
    : host_(host),
      departures_(departures),
      user_(user),
      programs_(std::move(programs)),
      to_(std::move(to)),
      options_(std::move(options)),
      progress_(std::move(progress)) {}

LocalMovePart::~LocalMovePart() {
  leader_is_gone();
  if (run_.valid()) run_.wait();
}

MovePart::Look LocalMovePart::look() {
  Look look;
  look.host = host_;
  for (const auto& program : programs_) {
    look.programs.push_back(program.unit->name());
    look.move_ids.push_back(program.move_id);
  }
  if (!programs_.empty()) look.weight = departures_.weigh(user_, programs_, to_, options_);
  return look;
}

// What the leader says of this host is so.
void LocalMovePart::need_own(const Others& others) const {
  const bool is_own = others.here < others.sources.size() && !programs_.empty() &&
                      others.sources[others.here].host == host_ &&
                      others.sources[others.here].programs == programs_.size();
  if (!is_own || others.group == 0) throw Failure("malformed request");
}

v1::GroupPlan LocalMovePart::plan(const Others& others) {
  need_own(others);
  options_.others = others;
  return departures_.plan(user_, programs_, to_, options_);
}

void LocalMovePart::check(const Others& others) {
  need_own(others);
  options_.others = others;
  moves_ = departures_.begin(user_, programs_, to_, options_);
  has_begun_ = true;
  run_ = std::async(std::launch::async, [this] { return departures_.run(moves_, progress_); });
  meet(MoveGroup::Meeting::kChecked);
}

MoveGroup& LocalMovePart::group() const {
  if (moves_.empty()) throw Failure("malformed request: a step is missing");
  return moves_.front()->group();
}

// All programs of this host have come there.
void LocalMovePart::meet(MoveGroup::Meeting meeting) {
  if (group().await_meeting(meeting)) return;
  run_.get();  // it throws, for they have not moved
}

void LocalMovePart::prepare() {
  group().others_came();
  meet(MoveGroup::Meeting::kPrepared);
}

void LocalMovePart::copy() {
  group().others_came();
  meet(MoveGroup::Meeting::kCopied);
}

void LocalMovePart::suspend() {
  group().others_came();
  meet(MoveGroup::Meeting::kSuspended);
}

v1::GroupReport LocalMovePart::finish() {
  is_on_its_own_ = true;
  group().others_came();
  return run_.get();
}

void LocalMovePart::end() {
  give_up();
  if (run_.valid()) run_.wait();
}

void LocalMovePart::give_up() {
  if (has_begun_) group().others_failed();
}

void LocalMovePart::leader_is_gone() {
  if (!is_on_its_own_) give_up();
}

}  // namespace ferry::host
