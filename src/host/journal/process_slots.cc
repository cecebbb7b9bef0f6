#include "host/journal/process_slots.h"

#include <utility>

#include "base/failure.h"
#include "device/parcel.h"

namespace ferry::host {

std::vector<ContextSlots> to_slots(std::vector<agent::ParkedContext> contexts) {
  std::vector<ContextSlots> result;
  for (agent::ParkedContext& context : contexts) {
    ContextSlots& added = result.emplace_back(ContextSlots{std::move(context.netdev)});
    added.device_behind = device::device_behind(context.parcel);
    added.names = std::move(context.names);
    const bool is_whole = added.device_behind.empty() ? rnic::to_slots(context.parcel, &added.slots)
                                                      : context.parcel.descriptors.empty();
    if (is_whole) continue;
    auto descriptors = agent::descriptors_of(contexts);
    agent::close_descriptors(&descriptors);
    throw Failure("malformed parcel of a context");
  }
  return result;
}

std::vector<agent::ParkedContext> to_parked(const std::vector<ContextSlots>& contexts) {
  std::vector<agent::ParkedContext> result;
  for (const ContextSlots& context : contexts) {
    result.push_back({context.netdev,
                      context.device_behind.empty() ? rnic::to_parcel(context.slots)
                                                    : device::to_parcel(context.device_behind),
                      context.names});
  }
  return result;
}

}  // namespace ferry::host
