#include "host/units/runc/runc.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "host/proc/broken_dump.h"
#include "host/proc/cgroups.h"
#include "host/proc/mounts.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"
#include "host/units/bundle.h"
#include "host/units/host_network.h"
#include "host/units/runc/veth_network.h"
#include "host/units/stdio_file.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::chrono::milliseconds kGlance{20};
constexpr std::chrono::seconds kEndLimit{10};   // for CRIU and runc to be done with a container
constexpr std::chrono::minutes kDiskLimit{10};  // for a walk through a root filesystem

json read_json(const std::string& path) {
  std::ifstream in(path);
  return json_or_discarded(in);
}

// What runc's own state says.
struct State {
  pid_t pid = 0;
  std::uint64_t started = 0;
  std::string bundle, freezer;
  bool is_libpods = false, has_pipe = false;
};

std::optional<State> read_state(const std::string& path) {
  const json file = read_json(path);
  if (!file.is_object()) return std::nullopt;
  try {
    State state;
    state.pid = file.at("init_process_pid");
    state.started = file.at("init_process_start");
    state.freezer = file.at("cgroup_paths").value("freezer", "");
    for (const std::string label : file.at("config").at("labels")) {
      if (label.starts_with("bundle=")) state.bundle = label.substr(label.find('=') + 1);
      state.is_libpods = state.is_libpods || label == "io.container.manager=libpod";
    }
    for (const std::string descriptor : file.at("external_descriptors")) {
      state.has_pipe = state.has_pipe || descriptor.starts_with("pipe:");
    }
    return state;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

bool runs(const State& state) {
  return is_alive(state.pid) && start_time(state.pid) == state.started;
}

bool is_id(const std::string& id) {
  return !id.empty() && id.find_first_of("/\n") == std::string::npos && id[0] != '.';
}

bool is_frozen(const std::string& freezer) {
  std::string state;
  std::ifstream(freezer + "/freezer.state") >> state;
  return state == "FROZEN" || state == "FREEZING";
}

// runc hands on pipes, and nothing else that is outside of the container.
void check_stdio(pid_t pid) {
  static const char* const kNames[] = {"standard input", "standard output", "standard error"};
  for (int i = 0; i < 3; ++i) {
    std::error_code error;
    const std::string descriptor = fmt::format("/proc/{}/fd/{}", pid, i);
    const std::string target = fs::read_symlink(descriptor, error);
    if (error || target == "/dev/null" || target.starts_with("pipe:[")) continue;
    if (target.starts_with("/") &&
        fs::equivalent(descriptor, fmt::format("/proc/{}/root{}", pid, target), error)) {
      continue;  // a file of its own
    }
    throw Failure(
        fmt::format("its {} is {}, which runc cannot restore; give it a pipe or /dev/null",
                    kNames[i], printable(target)));
  }
}

// Refuses a container of a pod: the processes that stay would lose its network.
void check_alone(pid_t root) {
  const auto tree = process_tree(root);
  const std::uint64_t network = namespace_inode(root, "net");
  for (const pid_t pid : all_processes()) {
    if (namespace_inode(pid, "net") != network) continue;
    if (std::count(tree.begin(), tree.end(), pid) > 0) continue;
    // The process may be one that the container has forked since, or may have ended already.
    if (is_below(pid, root) || namespace_inode(pid, "net") != network) continue;
    throw Failure(fmt::format("process {} ({}) shares its network namespace", pid,
                              program_name(pid).value_or("?")));
  }
}

void make_folders(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Failure(fmt::format("cannot make {}: {}", folder, error.message()));
}

std::string new_instance(const std::string& id) {
  std::random_device random;
  return fmt::format("runc:{}:{}", id, random());
}

// The container's id in the name of an instance.
std::string id_of(const std::string& instance) {
  const std::size_t begin = instance.find(':') + 1;
  return instance.substr(begin, instance.rfind(':') - begin);
}

// The file for the container's output on a host to which it has come.
std::string log_of(const json& record) {
  if (const std::string stdio = record.value("stdio", ""); !stdio.empty()) return stdio;
  return record.at("bundle").get<std::string>() + "/stdio.log";
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Failure(fmt::format("cannot write {}: {}", path, error_text(errno)));
}

// Bytes that the files of a folder take on the disk. Not found by `du`, which takes files of an
// overlay's lower layers for files of another file system.
std::uint64_t disk_usage(const std::string& folder) {
  const Outcome outcome =
      run({{"find", folder, "-xdev", "-printf", "%D:%i %b\n"}, {}, {}}, kDiskLimit);
  std::uint64_t blocks = 0;  // of 512 bytes
  std::set<std::string> known;
  std::istringstream lines(outcome.out);
  std::string file;
  // `find` complains of files that have just gone: its status says nothing.
  for (std::uint64_t of_file; lines >> file >> of_file;) {
    if (known.insert(file).second) blocks += of_file;
  }
  if (known.empty())
    throw Failure(fmt::format("cannot read {}: {}", folder, one_line(outcome.err)));
  return blocks * 512;
}

// Why `runc COMMAND` has ended with this status: CRIU's reason, or runc's own.
std::string failure_of_runc(const std::string& command, const std::string& images, int status) {
  const std::string log = images + (command == "checkpoint" ? "/dump.log" : "/restore.log");
  if (std::string error = error_of_log(log); !error.empty()) return error;
  // time="..." level=error msg="..."
  std::ifstream in(images + "/criu.out");
  std::string line, said;
  while (std::getline(in, line)) {
    const std::size_t begin = line.find("msg=\"");
    if (begin != std::string::npos) said = line.substr(begin + 5, line.rfind('"') - begin - 5);
  }
  return said.empty() ? fmt::format("runc {} ended with status {}", command, status)
                      : "runc: " + printable(said);
}

// The cgroups of a container that are not there yet: runc makes them.
std::vector<std::string> new_cgroups(const std::string& id, const json& config) {
  const json settings = config.value("linux", json::object());
  const std::string path = settings.value("cgroupsPath", "");
  auto cgroups = cgroups_at(path.empty() ? id : path);
  std::error_code ignored;
  std::erase_if(cgroups, [&](const std::string& cgroup) { return fs::exists(cgroup, ignored); });
  return cgroups;
}

// Unmounts from a root filesystem what was not mounted there before the container was to come: runc
// mounts there for a moment what config.json binds, so that mount points can be made in it.
void clear_root(const json& root) {
  const auto before = root.value("mounted", std::vector<std::string>());
  auto targets = targets_below(root.value("folder", ""));
  std::erase_if(targets, [&](const std::string& target) {
    return std::count(before.begin(), before.end(), target) > 0;
  });
  unmount_all(targets);
}

void empty(const std::string& folder) {
  // `find` would go on into mounts of the same file system.
  if (const auto targets = targets_below(folder); !targets.empty()) {
    throw Failure(fmt::format("{} is not deleted: {} is mounted", folder, targets.front()));
  }
  run({{"find", folder, "-xdev", "-mindepth", "1", "-delete"}, {}, {}}, kDiskLimit);
}

// Deletes a folder with its files and empty folders. Throws Failure if one of its folders is not
// empty: what is in that stays.
void remove_flat_folder(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) fs::remove(entry, error);
  fs::remove(folder, error);
  if (error) throw Failure(fmt::format("cannot delete {}: {}", folder, error.message()));
}

std::vector<std::string> environment(const CriuRunner& criu, const std::string& images,
                                     std::uint64_t move_id) {
  const std::string file = images + "/criu.conf";
  write_file(file, fmt::format("libdir {}\naction-script {}\nnetwork-lock skip\n",
                               criu.paths().plugin_folder, criu.paths().action_script));
  auto variables = criu.environment(move_id);
  variables.push_back("CRIU_CONFIG_FILE=" + file);
  return variables;
}

}  // namespace

Runc::Runc(std::string records, std::string program, std::string root)
    : Runtime(std::move(records)), program_(std::move(program)), root_(std::move(root)) {}

std::string Runc::folder_of(const std::string& id) const {
  return root_ + "/" + id;
}

std::string Runc::state_of(const std::string& id) const {
  return folder_of(id) + "/state.json";
}

std::optional<Container> Runc::find(const std::string& id) {
  if (!is_id(id)) return std::nullopt;
  const auto state = read_state(state_of(id));
  auto record = recorded(id);
  if (record && record->state != "restoring" && (!state || record->pid != state->pid)) {
    record.reset();  // of a former container
  }
  if (record || !state) return record;
  Container container;
  container.runtime = this;
  container.folder = directory() + "/" + id;
  container.name = id;
  container.pid = state->pid;
  container.state = runs(*state) ? "running" : "exited";
  return container;
}

std::vector<Container> Runc::all() {
  std::set<std::string> ids;
  std::error_code ignored;
  for (const auto& folder : {root_, directory()}) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      ids.insert(entry.path().filename());
    }
  }
  std::vector<Container> found;
  for (const auto& id : ids) {
    if (auto container = find(id)) found.push_back(std::move(*container));
  }
  return found;
}

Container Runc::describe(const std::string& host, const std::string& id) {
  const auto found = find(id);
  const auto state = is_id(id) ? read_state(state_of(id)) : std::nullopt;
  if (!found || !state) {
    throw Failure(fmt::format("there is no container '{}' of runc's on {}; see: runc list",
                              printable(id), host));
  }
  const auto refuse = [&](const std::string& why) {
    throw Failure(fmt::format("'{}' cannot move: {}", id, why));
  };
  if (found->state == "restoring") refuse("it is arriving still");
  if (!runs(*state)) {
    throw Failure(fmt::format("'{}' does not run on {}: it is stopped", id, host));
  }
  std::error_code ignored;
  if (fs::exists(folder_of(id) + "/exec.fifo", ignored)) refuse("it was not started yet");
  if (is_frozen(state->freezer))
    refuse(fmt::format("it is paused; let it run: runc resume {}", id));
  if (state->is_libpods) refuse("it is podman's, which has to know of it");
  try {
    json config = read_config(state->bundle);
    check_config(config);
    check_stdio(state->pid);
    const std::string netns = network_namespace(config);
    json network;
    if (netns.empty()) {
      if (const auto obstacle = obstacle_on_host_network(state->pid); !obstacle.empty()) {
        throw Failure(obstacle);
      }
    } else {
      struct stat status {};
      if (::stat(netns.c_str(), &status) != 0 ||
          status.st_ino != namespace_inode(state->pid, "net")) {
        refuse(fmt::format("its network namespace is not {} any more", netns));
      }
      check_alone(state->pid);
      network = describe_veths(netns);
    }
    const json record = {{"name", id},
                         {"state", "running"},
                         {"pid", state->pid},
                         {"netns", netns},
                         {"instance", found->instance.empty() ? new_instance(id) : found->instance},
                         {"rdma0_moves", !netns.empty()},
                         {"restored", found->restored},
                         {"bundle", state->bundle},
                         {"config", std::move(config)},
                         {"network", std::move(network)},
                         {"piped", state->has_pipe}};
    Container container = parse_container(json_text(record, 2) + "\n");
    container.runtime = this;
    container.folder = directory() + "/" + id;
    return container;
  } catch (const Failure& failure) {
    const std::string why = failure.what();
    if (why.starts_with("'")) throw;
    refuse(why);
  }
  return {};
}

Container Runc::with(const Container& container, const Extras& extras) {
  json record = json_or_discarded(container.json);
  if (!extras.stdio.empty()) {
    if (!record.at("piped")) {
      throw Failure(
          fmt::format("'{}' has no output that --stdio could take: it is no pipe", container.name));
    }
    record["stdio"] = extras.stdio;
  }
  if (extras.rootfs) {
    const std::string folder = root_folder(record.at("bundle"), record.at("config"));
    record["rootfs"] = {{"folder", folder}, {"bytes", disk_usage(folder)}};
  }
  Container changed = container;
  changed.json = json_text(record, 2) + "\n";
  return changed;
}

std::optional<Rootfs> Runc::copied_rootfs(const Container& container) {
  const json record = json_or_discarded(container.json);
  const auto rootfs = record.find("rootfs");
  if (rootfs == record.end()) return std::nullopt;
  return Rootfs{rootfs->at("folder"), rootfs->at("bytes")};
}

void Runc::check_arrival(const std::string&, const std::string& id,
                         const std::string& source_json) {
  const json source = json_or_discarded(source_json);
  if (!is_id(id) || !source.is_object()) throw Failure("malformed request");
  if (run({{program_, "--version"}, {}, {}}).status == 127) {
    throw Failure(fmt::format("runc is missing ({}): install it", program_));
  }
  if (std::error_code ignored; find(id) || fs::exists(folder_of(id), ignored)) {
    throw Failure(fmt::format("there is a container '{}' already", id));
  }
  try {
    std::optional<std::uint64_t> copied;
    if (source.contains("rootfs")) copied = source["rootfs"].at("bytes").get<std::uint64_t>();
    check_bundle(source.at("bundle"), source.at("config"), copied);
    if (source.contains("stdio")) check_stdio_file({source["stdio"], 0, 0, 0});
    if (source.at("network").is_object()) check_veths(source.at("network"));
  } catch (const json::exception&) {
    throw Failure("malformed request");
  }
}

Container Runc::receive(const std::string& id, const std::string& source_json) {
  if (!is_id(id)) throw Failure(fmt::format("'{}' is no name for a container", printable(id)));
  json record = json_or_discarded(source_json);
  try {
    record["state"] = "restoring";
    record["pid"] = 0;
    record["restored"] = true;
    record["instance"] = new_instance(id);
    record["made"] = json::array();
    const std::string bundle = record.at("bundle"), config = bundle + "/config.json";
    std::error_code ignored;
    const bool lacks_config = !fs::exists(config, ignored);
    if (lacks_config) record["made"].push_back(config);
    const json used = lacks_config ? record.at("config") : read_config(bundle);
    record["cgroups"] = new_cgroups(id, used);
    const std::string root = root_folder(bundle, used);
    record["root"] = {{"folder", root}, {"mounted", targets_below(root)}};
    if (record.at("piped") && !fs::exists(log_of(record), ignored)) {
      record["made"].push_back(log_of(record));
    }
    if (record.contains("rootfs")) {
      // As this side reads it: no other host says which folder is filled, and emptied.
      const std::string folder = root_folder(bundle, record.at("config"));
      record["rootfs"]["folder"] = folder;
      for (fs::path path = folder; !fs::exists(path, ignored); path = path.parent_path()) {
        record["made"].push_back(path);
      }
    }
    json& network = record.at("network");
    if (network.is_object()) network = with_free_ports(network);
    // The record comes first, so that a later ferryd knows what to take away.
    Container container = write_record(id, json_text(record, 2) + "\n");
    try {
      if (const auto rootfs = copied_rootfs(container)) make_folders(rootfs->folder);
      if (lacks_config) write_file(config, json_text(record.at("config"), 2) + "\n");
      if (network.is_object()) make_veths(network);
    } catch (const Failure&) {
      report_failure([&] { switch_network("release", container.instance); });
      forget(container);
      throw;
    }
    return container;
  } catch (const json::exception&) {
    throw Failure("malformed request");
  }
}

std::string Runc::dump(CriuRunner& criu, const CriuRunner::Dump& dump, const Container& container,
                       std::atomic<pid_t>* runc) {
  Command command{
      {program_, "--root", root_, "--criu", criu.paths().criu, "checkpoint", "--tcp-established",
       "--image-path", dump.images, "--work-path", dump.images, container.name},
      environment(criu, dump.images, dump.move_id),
      {}};
  for (auto& variable : criu.dump_variables(dump.left_out)) {
    command.environment.push_back(std::move(variable));
  }
  const pid_t pid = start(command, dump.images + "/criu.out");
  if (pid < 0) return fmt::format("cannot start runc: {}", error_text(-pid));
  *runc = pid;
  const int status = wait_for(pid);
  *runc = 0;
  if (status == 0) return {};
  // A runc that was killed has left the container frozen.
  if (const auto state = read_state(state_of(container.name)); state && runs(*state)) {
    thaw(state->pid);
  }
  return failure_of_runc("checkpoint", dump.images, status);
}

std::string Runc::restore(CriuRunner& criu, const CriuRunner::Restore& restore,
                          const Container& container, std::atomic<pid_t>* runc) {
  try {
    const json record = json_or_discarded(container.json);
    Command command{{program_, "--root", root_, "--criu", criu.paths().criu, "restore", "--detach",
                     "--tcp-established", "--image-path", restore.images, "--work-path",
                     restore.images, "--bundle", record.at("bundle"), container.name},
                    environment(criu, restore.images, restore.move_id),
                    {}};
    if (restore.without_memory) command.argv.insert(command.argv.end() - 1, "--lazy-pages");
    UniqueFd output;
    if (record.at("piped")) output = pipe_into({log_of(record), 0, 0, 0});
    const pid_t pid = output ? start(command, fmt::format("/proc/self/fd/{}", output.get()))
                             : start(command, restore.images + "/criu.out");
    if (pid < 0) return fmt::format("cannot start runc: {}", error_text(-pid));
    output.reset();
    *runc = pid;
    const int status = wait_for(pid);
    *runc = 0;
    if (status == 0) return {};
    // A runc that was killed leaves its mounts, and those of CRIU's cgroups in the images' folder.
    report_failure([&] { unmount_all(targets_below(folder_of(container.name))); });
    report_failure([&] { unmount_all(targets_below(restore.images)); });
    return failure_of_runc("restore", restore.images, status);
  } catch (const Failure& failure) {
    return failure.what();
  }
}

// Removes what runc knows of a container that does not live here. `cgroups`: those of a container
// that has not arrived.
void Runc::remove(const Container& container,
                  const std::optional<std::vector<std::string>>& cgroups) {
  const std::string folder = folder_of(container.name);
  const auto limit = std::chrono::steady_clock::now() + kEndLimit;
  std::error_code ignored;
  const auto is_there = [&] { return fs::exists(folder, ignored); };
  // As a rule a runc is about to remove it, unless that runc was killed.
  const auto is_left = [&] {
    if (const auto state = read_state(state_of(container.name))) return !runs(*state);
    return cgroups && std::none_of(cgroups->begin(), cgroups->end(), has_processes);
  };
  while (is_there() && !is_left() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(kGlance);
  }
  // A runc that was killed early has told nobody of these.
  for (const auto& cgroup : cgroups.value_or(std::vector<std::string>())) {
    report_failure([&] { remove_cgroup(cgroup); });
  }
  if (!is_there()) return;
  // In this folder runc mounts the root filesystem for CRIU: `runc delete` would delete its files.
  unmount_all(targets_below(folder));
  if (!fs::exists(state_of(container.name), ignored)) return remove_flat_folder(folder);
  const Outcome outcome =
      run({{program_, "--root", root_, "delete", "--force", container.name}, {}, {}});
  if (!outcome.ok() && is_there()) {
    throw Failure(fmt::format("cannot delete '{}': {}", container.name, one_line(outcome.err)));
  }
}

void Runc::forget(const Container& container) {
  const auto current = recorded(container.name);
  if (!current || current->instance != container.instance) return;
  std::error_code ignored;
  const json record = json_or_discarded(current->json);
  // Cgroups, mounts and root filesystem go only with a container that has never lived here.
  if (current->state == "restoring") {
    report_failure([&] { remove(container, record.value("cgroups", std::vector<std::string>())); });
    report_failure([&] { clear_root(record.value("root", json::object())); });
    report_failure([&] {
      if (const auto rootfs = copied_rootfs(*current)) empty(rootfs->folder);
    });
  } else {
    report_failure([&] { remove(container, std::nullopt); });
  }
  for (const std::string path : record.value("made", json::array())) fs::remove(path, ignored);
  Runtime::forget(container);
}

void Runc::leave(const Container& container) {
  write_record(container.name, container.json);
}

void Runc::left(const Container& container) {
  const auto current = recorded(container.name);
  if (!current || current->instance != container.instance) return;
  report_failure([&] { remove(container, std::nullopt); });
  report_failure([&] { switch_network("release", container.instance); });
  Runtime::forget(container);
}

void Runc::switch_network(const std::string& command, const std::string& instance) {
  const auto container = recorded(id_of(instance));
  if (!container || container->instance != instance) {
    if (command == "release") return;
    throw Failure(fmt::format("there is no record of '{}'", instance));
  }
  const json network = json_or_discarded(container->json).value("network", json());
  if (!network.is_object()) return;
  if (command == "hold") hold_veths(network);
  if (command == "deactivate") deactivate_veths(network);
  if (command == "activate") activate_veths(network);
  if (command == "release") remove_veths(network);
}

}  // namespace ferry::host
