#include "hca/rxe.h"

#include <sys/utsname.h>

#include <charconv>

#include "hca/objects.h"

namespace ferry::hca {
namespace {

// The vendor ID of rdma_rxe. No vendor has it: IEEE does not assign this OUI.
constexpr std::uint32_t kVendor = 0xFFFFFF;
constexpr int kFirstMajor = 6;

}  // namespace

bool takes_same_key(std::string_view release) {
  int major = 0;
  const auto [end, error] = std::from_chars(release.data(), release.data() + release.size(), major);
  return error == std::errc() && end != release.data() + release.size() && *end == '.' &&
         major >= kFirstMajor;
}

bool begins_anew(ibv_context& context) {
  const StockErrno stock_errno;
  ibv_device_attr attributes{};
  utsname system{};
  return ibv_query_device(&context, &attributes) == 0 && attributes.vendor_id == kVendor &&
         ::uname(&system) == 0 && takes_same_key(system.release);
}

}  // namespace ferry::hca
