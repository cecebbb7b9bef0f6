#include "host/move/slots_message.h"

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/directory/places.h"
#include "host/letters/letter_message.h"

namespace ferry::host {

ContextSlots from_message(const v1::ContextSlots& message) {
  ContextSlots slots{message.netdev()};
  slots.device_behind = message.device_behind();
  for (const auto& name : message.names()) slots.names.push_back(name_of(name));
  for (const auto& slot : message.slots()) {
    rnic::Slot& added = slots.slots.emplace_back();
    const auto local = from_message(slot.local());
    if (!local) throw Failure("malformed address in a message between ferryds");
    added.local = *local;
    added.slot = slot.slot();
    if (const auto origin = from_message(slot.origin())) added.origin = *origin;
    added.epoch = slot.epoch();
  }
  return slots;
}

void to_message(const ContextSlots& context, v1::ContextSlots* message) {
  message->set_netdev(context.netdev);
  for (const auto& slot : context.slots) {
    auto* added = message->add_slots();
    to_message(slot.local, added->mutable_local());
    added->set_slot(slot.slot);
    if (slot.has_origin()) to_message(slot.origin, added->mutable_origin());
    added->set_epoch(slot.epoch);
  }
  message->set_device_behind(context.device_behind);
  for (const auto& name : context.names) to_message(name, message->add_names());
}

ProcessSlots from_message(const v1::ProcessSlots& message) {
  ProcessSlots place;
  place.inner_pid = message.inner_pid();
  for (const auto& context : message.contexts()) place.contexts.push_back(from_message(context));
  return place;
}

std::vector<ProcessSlots> from_messages(
    const google::protobuf::RepeatedPtrField<v1::ProcessSlots>& messages) {
  std::vector<ProcessSlots> places;
  for (const auto& message : messages) places.push_back(from_message(message));
  return places;
}

void to_message(const ProcessSlots& place, v1::ProcessSlots* message) {
  message->set_inner_pid(place.inner_pid);
  for (const auto& context : place.contexts) to_message(context, message->add_contexts());
}

}  // namespace ferry::host
