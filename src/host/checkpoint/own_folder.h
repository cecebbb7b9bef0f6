#pragma once

#include <string>

namespace ferry::host {

// Images say as whom their processes run: root restarts only what no other user could have written.
//
// The path of the folder without symbolic links. Throws Failure when somebody else than root may write to it, or could
// put another folder in its place.
std::string need_own_folder(const std::string& path);
// As above, and all files in it are root's.
std::string need_own_contents(const std::string& path);

}  // namespace ferry::host
