#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "base/failure.h"
#include "pipe/engine/engines.h"

namespace ferry::pipe {

// What FERRY_PIPE_ENGINE names, for tests that every engine passes; software unless it is set.
inline std::string chosen_engine_name() {
  const char* name = std::getenv("FERRY_PIPE_ENGINE");
  return name != nullptr ? name : "software";
}

inline std::unique_ptr<Engine> chosen_engine() {
  auto engine = make_engine(chosen_engine_name());
  if (!engine)
    throw Failure("no engine '" + chosen_engine_name() +
                  "' in this build; unset FERRY_PIPE_ENGINE");
  return engine;
}

}  // namespace ferry::pipe
