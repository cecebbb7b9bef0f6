#include "sim_host.h"

#include <algorithm>

namespace ferry::rnic::testing {

SimStandIn::SimStandIn(PortSource& source, const rnic::Slot& slot, transport::Time now)
    : source_(source),
      stand_in_([this](const port::Endpoint& to, const wire::Header& header,
                       std::span<const std::byte> payload) { send(to, header, payload); }) {
  int error = 0;
  port_ = source.adopt(slot.descriptor, &error);
  well_formed_ = port_ != nullptr;
  for (const auto& entry : slot.entries) well_formed_ &= stand_in_.add(entry, now);
}

void SimStandIn::send(const port::Endpoint& to, const wire::Header& header,
                      std::span<const std::byte> payload) {
  std::uint16_t identification = 0;
  const auto out =
      port_->reserve(to, wire::packet_size(header.opcode, payload.size()), &identification);
  if (out.empty()) return;
  wire::encode_header(header, payload.size(), out);
  std::copy(payload.begin(), payload.end(),
            out.begin() + static_cast<std::ptrdiff_t>(wire::header_size(header.opcode)));
  wire::seal(out, port_->local(), to, identification);
}

void SimStandIn::run(transport::Time now) {
  std::array<port::Received, 16> batch;
  for (std::size_t count; (count = port_->receive(batch)) > 0;) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!wire::verify(batch[i].bytes, batch[i].from, port_->local(),
                        batch[i].ip_identification)) {
        continue;
      }
      if (const auto packet = wire::parse(batch[i].bytes)) {
        stand_in_.handle_packet(*packet, batch[i].from, now);
      }
    }
  }
  if (stand_in_.next_deadline() <= now) stand_in_.handle_timeout(now);
  port_->flush();
}

}  // namespace ferry::rnic::testing
