#pragma once

#include <memory>
#include <string>

#include "ferry.grpc.pb.h"

// Talks to the ferryd of this host.
namespace ferry::cli {

// `ferry move PROGRAM --to HOST [--json]`. All of them throw migrate::Failure.
int move(const std::string& program, const std::string& to, bool json);
int ps(bool json);
int resolve(const std::string& move_id, bool commit);

}  // namespace ferry::cli
