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

void FallbackRnic::follow(const std::string& name) {
  std::shared_ptr<device::Rnic> own;
  if (device::is_own_name(name)) {
    own = find_(name);
    if (own == nullptr) own = std::make_shared<MissingRnic>(name);
  } else {
    kernel_->follow(name);
  }
  std::lock_guard lock(mutex_);
  own_ = std::move(own);
}

}  // namespace ferry::verbs
