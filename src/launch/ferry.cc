// ferry: the command. It starts programs by itself, and depends on little, so that this costs little
// time; all else is ferry-client's (src/cli), which links gRPC and many more libraries.

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "base/companion.h"
#include "base/failure.h"
#include "launch/become.h"
#include "launch/run.h"

namespace ferry::launch {
namespace {

// `ferry lab ARGS...`: becomes lab/lab.
int lab(const std::vector<std::string>& arguments) {
  const std::filesystem::path here = folder_of_program();
  const auto installed = prefix() / "share/ferry/lab/lab";
  const auto script = std::filesystem::exists(installed) ? installed : here / "lab/lab";
  if (!std::filesystem::exists(script)) {
    throw Failure("the lab is not installed here; install the package ferry-lab");
  }
  ::setenv("FERRY_BIN", here.c_str(), 0);
  std::vector<std::string> command{script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  become(script, command);
}

int command(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "run")
    return run({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "lab")
    return lab({arguments.begin() + 1, arguments.end()});
  std::vector<std::string> client{"ferry"};
  client.insert(client.end(), arguments.begin(), arguments.end());
  become(need_companion("ferry-client"), client);
}

}  // namespace
}  // namespace ferry::launch

int main(int argc, char** argv) {
  try {
    return ferry::launch::command({argv + std::min(argc, 1), argv + argc});
  } catch (const std::exception& failure) {
    std::cerr << "ferry: " << failure.what() << '\n';
    return 1;
  }
}
