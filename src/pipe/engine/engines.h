#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipe/engine/engine.h"

namespace ferry::pipe {

// Of this build.
std::vector<std::string> engine_names();
// Null: there is none of that name.
std::unique_ptr<Engine> make_engine(const std::string& name);

}  // namespace ferry::pipe
