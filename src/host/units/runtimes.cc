#include "host/units/runtimes.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/failure.h"
#include "host/units/runc/runc.h"

namespace ferry::host {

Runtime& Runtimes::named(const std::string& runtime) const {
  if (runtime.empty()) return hooked_;
  if (runc_ != nullptr && runtime == runc_->runtime()) return *runc_;
  throw Failure(
      fmt::format("the ferryd of {} moves no containers of {}", host_, printable(runtime)));
}

Runtime& Runtimes::of_instance(const std::string& instance) const {
  return runc_ != nullptr && Runc::has_made(instance) ? *runc_ : hooked_;
}

std::vector<Container> Runtimes::all_containers() const {
  auto all = hooked_.all();
  if (runc_ != nullptr) std::ranges::move(runc_->all(), std::back_inserter(all));
  return all;
}

std::optional<Container> Runtimes::container_of(pid_t pid) const {
  auto found = hooked_.of_process(pid);
  return found || runc_ == nullptr ? found : runc_->of_process(pid);
}

}  // namespace ferry::host
