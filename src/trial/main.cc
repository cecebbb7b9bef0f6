// ferry-device-trial finds out whether an RDMA device of this host's kernel, or one of Ferry's own, has what a program
// needs that is about to come (virtual/messages/needs.h). It makes all of that with the device, and destroys it again.
//
//   ferry-device-trial DEVICE    the needs come from stdin
//
// Exit code: 0: the device has it; 1: it has not, and stderr says in one line what is missing.

#include <infiniband/verbs.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "base/failure.h"
#include "device/own_names.h"
#include "hca/rnic.h"
#include "rnic/discover.h"
#include "virtual/messages/needs.h"

namespace {

using namespace ferry;

struct NoEvents final : device::EventSink {
  void completion(device::Cq&) override {}
  void asynchronous(ibv_event_type, device::Object*) override {}
};

using Devices = std::unique_ptr<ibv_device*[], decltype(&ibv_free_device_list)>;

ibv_device* find(const Devices& devices, int count, const std::string& name) {
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(devices[i])) return devices[i];
  }
  throw Failure("no provider of libibverbs knows it");
}

std::unique_ptr<device::Rnic> find_own(const std::string& name) {
  auto rnic = rnic::find(name);
  if (rnic == nullptr) throw Failure("there is no such device of Ferry's");
  return rnic;
}

void try_out(const std::string& name) {
  virt::Needs needs;
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (!virt::parse(text, &needs)) throw Failure("its needs are malformed");
  int count = 0;
  const Devices devices(ibv_get_device_list(&count), ibv_free_device_list);
  const std::unique_ptr<device::Rnic> rnic =
      device::is_own_name(name)
          ? find_own(name)
          : std::make_unique<hca::Rnic>(find(devices, count, name), hca::Rnic::OpenNamed());
  NoEvents events;
  int error = 0;
  const auto context = rnic->open(events, &error);
  if (!context) throw Failure("it cannot be opened: " + error_text(error));
  const std::string refusal = virt::try_out(needs, *context);
  if (!refusal.empty()) throw Failure(refusal);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: ferry-device-trial DEVICE\n";
    return 1;
  }
  try {
    try_out(argv[1]);
    return 0;
  } catch (const std::exception& failure) {
    std::cerr << failure.what() << '\n';
    return 1;
  }
}
