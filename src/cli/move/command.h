#pragma once

#include "base/subcommands.h"

namespace ferry::cli {

// Adds `ferry move`.
void add_move(CLI::App& app, Commands& commands);

}  // namespace ferry::cli
