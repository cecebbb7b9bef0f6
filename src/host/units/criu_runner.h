#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

// Runs CRIU with Ferry's plugin and action script.
namespace ferry::host {

class CriuRunner {
 public:
  struct Paths {
    std::string criu;            // name in PATH, or path
    std::string plugin_folder;   // has ferry_plugin.so and nothing else
    std::string action_script;   // ferry-criu-action
    std::string dump_library;    // ferry-criu-dump.so
    std::string control_socket;  // the plugin and the script connect to it
  };
  explicit CriuRunner(Paths paths);

  // The CRIU for --criu WANTED: that of ferry-get-criu, if there is one, unless another is wanted.
  static std::string find(const std::string& wanted);

  // What any user can see of what unusable() says: whether everything is there.
  std::string missing() const;
  // Why CRIU cannot be used here, in one line; empty when it can. The answer of one look is kept.
  std::string unusable();

  struct Dump {
    pid_t root = 0;
    std::string images;  // directory
    std::uint64_t move_id = 0;
    std::string netns;     // path of the tree's own network namespace; empty: none
    std::string left_out;  // folder of the pages that are left out (criu/left_out.cc); empty: none
    std::vector<std::string> external;  // files that stay here, as --external takes them
    bool tells_all = false;             // its log has all that it does
    // For a unit that gives its image away as it is written (Unit::is_checkpointed()). `send`: the
    // next piece of the file of this name; throws Failure. `written`: all pieces are sent; gives
    // what the action post-dump does, EAGAIN included.
    std::function<void(const std::string& name, std::span<const std::byte> piece)> send;
    std::function<int()> written;
    // For a unit without CRIU (Unit::needs_criu()), beside `written`: what CRIU's plugin and action script tell
    // ferryd. Each throws Failure; `need_wanted` does when the move is given up. `failed`: it is, before the unit is
    // taken back.
    std::function<void()> pause, freeze, leave_network, need_wanted, failed;
  };
  // Freezes and dumps the tree. Ends after the tree was killed or, on failure, thawed. Gives an
  // empty string, or what failed in one line. `*criu` is CRIU's pid while it runs.
  std::string dump(const Dump& dump, std::atomic<pid_t>* criu);

  struct Restore {
    std::string images;
    std::uint64_t move_id = 0;
    std::string netns;
    bool without_memory = false;  // a precopy::PageServer has what the dump has left out
    bool tells_all = false;       // its log has all that it does
    struct Inherited {
      std::string id;  // as --inherit-fd takes it
      int descriptor = -1;
    };
    std::vector<Inherited> inherited;  // what the tree gets in place of files that stayed behind
    // For a unit without CRIU, when all is there and nothing of it runs; `root`: its first process. Gives what the
    // action post-restore does.
    std::function<int(pid_t root)> restored;
  };
  // Restores a tree; ends when the tree runs (as a child of ferryd), or everything is gone again.
  // Gives an empty string, or what failed in one line. `*criu` is CRIU's pid while it runs.
  std::string restore(const Restore& restore, std::atomic<pid_t>* criu);

  const Paths& paths() const { return paths_; }
  // Variables by which the plugin and the action script find this ferryd, and the move.
  std::vector<std::string> environment(std::uint64_t move_id) const;
  // Variables for a dump, which leaves out the pages that `left_out` names if it is not empty.
  std::vector<std::string> dump_variables(const std::string& left_out) const;

  static constexpr int kMinimumVersion = 40200;  // 4.2: AF_INET sockets on kernels since 6.18

 private:
  std::string find_problem() const;

  const Paths paths_;
  std::mutex mutex_;
  std::string problem_;
  bool looked_ = false;
};

// Kills the action scripts that run below a CRIU, or below a runtime that runs one: then CRIU
// undoes what it has done, as after any script that fails.
void kill_scripts(pid_t criu);

// "4.2.1" of `criu --version` as 40201; 0 when there is none.
int parse_criu_version(const std::string& output);

// Why `criu COMMAND`, "dump" or "restore", has ended with this status, in one line.
std::string failure_of_criu(const std::string& command, int status, const std::string& images);

// The line that says best what went wrong, from a log of CRIU; without its time and file.
std::string error_of_log(const std::string& path);

}  // namespace ferry::host
