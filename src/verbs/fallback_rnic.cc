#include "verbs/fallback_rnic.h"

#include <cerrno>

#include "device/own_names.h"

namespace ferry::verbs {
namespace {

// One of Ferry's own devices that is not here.
class MissingRnic final : public device::Rnic {
 public:
  explicit MissingRnic(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  const std::string& netdev() const override { return name_; }
  std::uint64_t guid() const override { return 0; }
  std::unique_ptr<device::Context> open(device::EventSink& /*sink*/, int* error) override {
    *error = ENODEV;
    return nullptr;
  }

 private:
  const std::string name_;
};

}  // namespace

std::shared_ptr<device::Rnic> FallbackRnic::find_own(const std::string& name) const {
  for (auto& rnic : discover_()) {
    if (rnic->name() == name) return std::move(rnic);
  }
  return std::make_shared<MissingRnic>(name);
}

void FallbackRnic::follow(const std::string& name) {
  const bool is_own = device::is_own_name(name);
  auto own = is_own ? find_own(name) : nullptr;
  if (!is_own) kernel_->follow(name);
  std::lock_guard lock(mutex_);
  own_ = std::move(own);
}

}  // namespace ferry::verbs
