#pragma once

#include <filesystem>
#include <string>

namespace ferry {

// The folder of this program's file, also when an upgrade has replaced the file.
std::filesystem::path folder_of_program();

// The prefix under which this program is installed: it is in bin, sbin or lib/ferry there.
std::filesystem::path prefix();

// The path of a file of Ferry's that belongs to this program: in lib/ferry of the prefix when
// installed, beside it in a build. It need not be there.
std::string companion(const std::string& name);

// The same. Throws Failure when it is not there.
std::string need_companion(const std::string& name);

}  // namespace ferry
