#include "rnic/slot.h"

#include "wire/bytes.h"

// The bytes of a parcel are its slots, one after the other, each
//
//   local:18 slot:32 origin:18 epoch:32 count:32, then for each entry length:32 entry[length]
//
// little-endian. The 18 bytes of `local` and `origin` are an address and a UDP port.
namespace ferry::rnic {

device::Parcel to_parcel(const std::vector<Slot>& slots) {
  device::Parcel parcel;
  wire::ByteWriter out(&parcel.bytes);
  for (const Slot& slot : slots) {
    if (slot.descriptor >= 0) parcel.descriptors.push_back(slot.descriptor);
    out.put(slot.local);
    out.put(slot.slot);
    out.put(slot.origin);
    out.put(slot.epoch);
    out.put(static_cast<std::uint32_t>(slot.entries.size()));
    for (const auto& entry : slot.entries) {
      out.put(static_cast<std::uint32_t>(entry.size()));
      out.append(entry.data(), entry.size());
    }
  }
  return parcel;
}

bool to_slots(const device::Parcel& parcel, std::vector<Slot>* out) {
  out->clear();
  if (parcel.kind != device::Kind::kFerry) return false;
  wire::ByteReader in(parcel.bytes);
  while (in.remaining() > 0) {
    Slot& slot = out->emplace_back();
    slot.local = in.get_endpoint();
    slot.slot = in.get<std::uint32_t>();
    slot.origin = in.get_endpoint();
    slot.epoch = in.get<std::uint32_t>();
    const auto entries = in.get<std::uint32_t>();
    for (std::uint32_t i = 0; i < entries && in.ok(); ++i) {
      const auto entry = in.take(in.get<std::uint32_t>());
      slot.entries.emplace_back(entry.begin(), entry.end());
    }
    if (!in.ok()) return false;
  }
  if (parcel.descriptors.empty()) return true;
  if (parcel.descriptors.size() != out->size()) return false;
  for (std::size_t i = 0; i < out->size(); ++i) (*out)[i].descriptor = parcel.descriptors[i];
  return true;
}

}  // namespace ferry::rnic
