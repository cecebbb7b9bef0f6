#include "host/units/podman/podman_notes.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace ferry::host {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "podman-";
constexpr char kLeaves[] = ".leaves";

// Calls `take` with the token and the content of each file podman-TOKEN`extension`.
void for_each(const std::string& directory, const std::string& extension,
              const std::function<void(const std::string& token, const json& note)>& take) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().stem();
    if (!name.starts_with(kPrefix) || entry.path().extension() != extension) continue;
    std::ifstream file(entry.path());
    try {
      take(name.substr(kPrefix.size()), json_of(file));
    } catch (const json::exception& error) {
      log::error("cannot read {}: {}", entry.path().string(), one_line(error.what()));
    }
  }
}

}  // namespace

std::string PodmanNotes::new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string PodmanNotes::path_of(const std::string& token) const {
  return fmt::format("{}/{}{}", directory_, kPrefix, token);
}

void PodmanNotes::write(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file.get()) == 0) {
    return;
  }
  const int error = errno;
  ::unlink(path.c_str());
  throw Failure(fmt::format("cannot write {}: {}", path, error_text(error)));
}

void PodmanNotes::arrives(const std::string& token, const PodmanArrival& arrival) const {
  write(path_of(token), json_text({{"id", arrival.id},
                                   {"name", arrival.name},
                                   {"volumes", arrival.volumes},
                                   {"archive", arrival.archive}}));
}

void PodmanNotes::forget_arrival(const std::string& token) const {
  ::unlink(path_of(token).c_str());
}

std::vector<std::pair<std::string, PodmanArrival>> PodmanNotes::arrivals() const {
  std::vector<std::pair<std::string, PodmanArrival>> found;
  for_each(directory_, "", [&](const std::string& token, const json& note) {
    found.emplace_back(token, PodmanArrival{note.at("id"), note.at("name"), note.at("volumes"),
                                            note.at("archive")});
  });
  return found;
}

void PodmanNotes::leaves(const std::string& token, const PodmanDeparture& departure) const {
  write(path_of(token) + kLeaves, json_text({{"id", departure.id}, {"name", departure.name}}));
}

std::vector<std::pair<std::string, PodmanDeparture>> PodmanNotes::departures() const {
  std::vector<std::pair<std::string, PodmanDeparture>> found;
  for_each(directory_, kLeaves, [&](const std::string& token, const json& note) {
    found.emplace_back(token, PodmanDeparture{note.at("id"), note.at("name")});
  });
  return found;
}

bool PodmanNotes::has_to_leave(const std::string& token) const {
  return ::access((path_of(token) + kLeaves).c_str(), F_OK) == 0;
}

void PodmanNotes::forget_departure(const std::string& token) const {
  ::unlink((path_of(token) + kLeaves).c_str());
  ::unlink(fifo(token).c_str());
}

}  // namespace ferry::host
