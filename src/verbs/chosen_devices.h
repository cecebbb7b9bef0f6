#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/movable.h"

// Which devices a program gets: those that FERRY_DEVICE=NAME[,NAME] names, in this order, of the
// kernel's and of Ferry's own. Without it, Ferry's own and then the stock library's.
namespace ferry::verbs {

// The names, each once; empty: FERRY_DEVICE is not set.
std::vector<std::string> chosen_names();
// discover_rnics(), without those that were not chosen.
std::vector<std::unique_ptr<device::MovableRnic>> chosen_rnics();

// Says on stderr that the program opens a device, if FERRY_VERBOSE is "on".
void say_opened(const device::Rnic& rnic, bool of_kernel);

}  // namespace ferry::verbs
