#pragma once

#include "base/subcommands.h"

namespace ferry::cli {

// Adds `ferry vm`.
void add_vm(CLI::App& app, Commands& commands);

}  // namespace ferry::cli
