#include "host/move/departed.h"

#include "base/failure.h"
#include "base/log.h"
#include "host/standin/origins.h"

namespace ferry::host {

// A ferryd that ends leaves what it holds to the next.

std::shared_ptr<void> hold_network(Host& host, const std::string& instance) {
  return {nullptr, [&host, instance](void*) {
            if (host.stopping) return;
            report_failure(
                [&] { host.runtimes->of_instance(instance).switch_network("release", instance); });
          }};
}

void keep_origin(Host& host, std::uint64_t move_id, StandInId stand_in, const Place& place,
                 std::shared_ptr<void> network) {
  std::shared_ptr<void> held(nullptr, [&host, move_id, origin = place.origin, network](void*) {
    if (!host.stopping) host.decisions->freed(move_id, origin);
  });
  host.origins->keep(stand_in, place, std::move(held), [&host, move_id](const Place& next) {
    report_failure([&] { host.decisions->note(Journal::next(move_id, next)); });
  });
}

}  // namespace ferry::host
