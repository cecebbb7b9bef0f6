#include "launch/become.h"

#include <unistd.h>

#include <cerrno>

#include "base/failure.h"

namespace ferry::launch {

void become(const std::string& path, const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  throw Failure("cannot run " + path + ": " + error_text(errno));
}

}  // namespace ferry::launch
