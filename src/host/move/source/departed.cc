#include "host/move/source/departed.h"

#include "base/failure.h"
#include "base/log.h"
#include "host/journal/journal.h"

namespace ferry::host {

// Origins hold what these functions make for longer than a Departed lives: the lambdas capture no
// `this`.

std::shared_ptr<void> Departed::hold_network(const std::string& instance) const {
  if (instance.empty()) return nullptr;
  return {nullptr, [&stopping = stopping_, &units = units_, instance](void*) {
            if (stopping) return;
            report_failure([&] { units.switch_network("release", instance); });
          }};
}

void Departed::keep_origin(std::uint64_t move_id, StandInId stand_in, const Place& place,
                           const std::shared_ptr<void>& network) const {
  std::shared_ptr<void> held(nullptr, [&stopping = stopping_, &decisions = decisions_, move_id,
                                       origin = place.origin, network](void*) {
    if (!stopping) decisions.freed(move_id, origin);
  });
  origins_.keep(stand_in, place, std::move(held),
                [&decisions = decisions_, move_id](const Place& next) {
                  report_failure([&] { decisions.note(Journal::next(move_id, next)); });
                });
}

}  // namespace ferry::host
