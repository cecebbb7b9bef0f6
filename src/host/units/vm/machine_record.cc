#include "host/units/vm/machine_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "base/json_text.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr std::size_t kLongestName = 40;  // the path of a UNIX socket has 107 characters at most
constexpr char kFile[] = "/machine.json", kNewFile[] = "/machine.json.new";

}  // namespace

bool MachineRecord::is_alive() const {
  return pid != 0 && start_time(pid) == started && host::is_alive(pid);
}

void MachineRecords::need_name(const std::string& name) {
  const bool is_good = !name.empty() && name.size() <= kLongestName && name[0] != '.' &&
                       std::all_of(name.begin(), name.end(), [](unsigned char c) {
                         return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                       });
  if (is_good) return;
  throw Failure(fmt::format("'{}' is no name for a machine ({} letters, digits, - _ and . at most)",
                            printable(name), kLongestName));
}

std::optional<MachineRecord> MachineRecords::find(const std::string& name) const {
  try {
    need_name(name);
    std::ifstream file(folder_of(name) + kFile);
    const auto json = json_of(file);
    return MachineRecord{name,
                         json.at("command").get<std::vector<std::string>>(),
                         json.at("nics").get<std::vector<std::string>>(),
                         json.at("directory").get<std::string>(),
                         json.at("pid").get<pid_t>(),
                         json.at("started").get<std::uint64_t>(),
                         json.at("arriving").get<bool>()};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::vector<MachineRecord> MachineRecords::all() const {
  std::vector<MachineRecord> records;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    if (auto record = find(entry.path().filename())) records.push_back(std::move(*record));
  }
  std::ranges::sort(records, {}, &MachineRecord::name);
  return records;
}

void MachineRecords::write(const MachineRecord& record) const {
  stage(record);
  publish(record.name);
}

void MachineRecords::stage(const MachineRecord& record) const {
  namespace fs = std::filesystem;
  const std::string folder = folder_of(record.name);
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) throw Failure(fmt::format("cannot make {}: {}", folder, error.message()));
  std::ofstream file(folder + kNewFile);
  file << json_text({{"command", record.command},
                     {"nics", record.nics},
                     {"directory", record.directory},
                     {"pid", record.pid},
                     {"started", record.started},
                     {"arriving", record.is_arriving}},
                    2)
       << '\n';
  if (!file.flush()) throw Failure(fmt::format("cannot write {}{}", folder, kNewFile));
}

void MachineRecords::publish(const std::string& name) const {
  std::error_code ignored;  // there is no staged record of a machine that has left
  std::filesystem::rename(folder_of(name) + kNewFile, folder_of(name) + kFile, ignored);
}

void MachineRecords::remove(const std::string& name) const {
  std::error_code ignored;
  std::filesystem::remove_all(folder_of(name), ignored);
}

}  // namespace ferry::host
