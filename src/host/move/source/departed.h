#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "host/directory/directory.h"
#include "host/journal/decision_log.h"
#include "host/standin/origins.h"
#include "host/units/units.h"

namespace ferry::host {

// What stays at the source when a program has left, until nobody needs it any more. A ferryd that
// ends leaves it to the next ferryd.
class Departed {
 public:
  // `stopping`: this ferryd ends.
  Departed(const Units& units, DecisionLog& decisions, Origins& origins,
           const std::atomic<bool>& stopping)
      : units_(units), decisions_(decisions), origins_(origins), stopping_(stopping) {}

  // Holds the network of the unit with this instance, which is released when nobody holds it any
  // more. Null: the unit had no network of its own.
  std::shared_ptr<void> hold_network(const std::string& instance) const;

  // Origins::keep(), and notes in the journal when the RNIC has moved on, and when its slot is
  // free.
  void keep_origin(std::uint64_t move_id, StandInId stand_in, const Place& place,
                   const std::shared_ptr<void>& network) const;

 private:
  const Units& units_;
  DecisionLog& decisions_;
  Origins& origins_;
  const std::atomic<bool>& stopping_;
};

}  // namespace ferry::host
