#include "criu/talk.h"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace ferry::criu {
namespace {

constexpr char kAgentThread[] = "ferry-agent";  // agent/agent.cc names it so

std::string first_line(const std::string& path) {
  char line[256] = "";
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    if (std::fgets(line, sizeof line, file) == nullptr) line[0] = '\0';
    std::fclose(file);
  }
  line[std::strcspn(line, "\n")] = '\0';
  return line;
}

// The numbers among a directory's entries.
std::vector<pid_t> numbers_in(const std::string& path) {
  std::vector<pid_t> numbers;
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return numbers;
  while (const dirent* entry = ::readdir(folder)) {
    if (const long number = std::strtol(entry->d_name, nullptr, 10); number > 0) {
      numbers.push_back(static_cast<pid_t>(number));
    }
  }
  ::closedir(folder);
  return numbers;
}

pid_t parent_of(pid_t pid) {
  const std::string line = first_line("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t end = line.rfind(')');  // the name may contain anything
  int parent = 0;
  if (end == std::string::npos || std::sscanf(line.c_str() + end, ") %*c %d", &parent) != 1) {
    return 0;
  }
  return parent;
}

}  // namespace

int ask(agent::MessageType type, std::span<const std::byte> body, int timeout_ms,
        agent::Done* reply) {
  const int socket = agent::connect_to_ferryd();
  if (socket < 0) return -socket;
  agent::Message answer;
  int error = agent::send_message(socket, type, body);
  if (error == 0) error = agent::receive_message(socket, &answer, timeout_ms);
  if (error == 0 &&
      (answer.version != agent::kVersion || answer.type != agent::MessageType::kDone ||
       !agent::parse(answer.body, reply))) {
    error = EPROTO;
  }
  agent::close_descriptors(&answer.descriptors);
  ::close(socket);
  return error;
}

bool uses_ferry(pid_t pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const pid_t thread : numbers_in(tasks)) {
    if (first_line(tasks + "/" + std::to_string(thread) + "/comm") == kAgentThread) return true;
  }
  return false;
}

bool tree_uses_ferry(pid_t root) {
  for (const pid_t pid : numbers_in("/proc")) {
    if (!uses_ferry(pid)) continue;
    for (pid_t ancestor = pid; ancestor > 0; ancestor = parent_of(ancestor)) {
      if (ancestor == root) return true;
    }
  }
  return false;
}

}  // namespace ferry::criu
