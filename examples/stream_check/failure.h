// What ends stream_check before it can judge anything: one line for the user.
#pragma once

#include <stdexcept>

namespace stream_check {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace stream_check
