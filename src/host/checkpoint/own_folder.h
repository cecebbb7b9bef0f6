#pragma once

#include <string>

#include "store/store.h"

namespace ferry::host {

// Images say as whom their processes run: root restarts only what no other user could have written.
//
// The path of the folder without symbolic links. Throws Failure when somebody else than root may write to it, or could
// put another folder in its place.
std::string need_own_folder(const std::string& path);
// As above, and all files in it are root's.
std::string need_own_contents(const std::string& path);
// The checkpoint `id` of the store in `directory`, to be read, as need_own_contents(). `key`: the content key of an
// encrypted one; empty: it is not to be encrypted. Throws Failure.
store::Checkpoint open_checkpoint(const store::Store& store, const std::string& directory,
                                  const std::string& id, const std::string& key);

}  // namespace ferry::host
