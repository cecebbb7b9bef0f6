// ferry_plugin.so: tells the ferryd of this host when CRIU stops, freezes and gives back a process
// tree, so that the RDMA devices of its processes are stopped before the freeze
// (docs/architecture.md, "The way of a move"); and when CRIU restores a checkpoint, because only one restored copy may
// have RDMA. Any runtime that drives CRIU gets this with the plugin in CRIU's folder.

#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "criu/talk.h"

extern "C" {
#pragma GCC visibility push(default)
#include <criu-plugin.h>
#pragma GCC visibility pop

// CRIU's own log.
void print_on_level(unsigned int level, const char* format, ...);
}

namespace {

using ferry::agent::Done;
using ferry::agent::MessageType;

constexpr unsigned kError = 1, kInfo = 3;
constexpr int kTimeoutMs = 30000;
constexpr std::size_t kMaxNote = 4096;

int stage = -1;
pid_t root = 0;           // the tree's first process; 0: not known yet
bool has_ferryd = false;  // ferryd knows of this dump
bool is_frozen = false;
std::string claimed;       // note of the checkpoint that is being restored
bool is_of_move = false;   // ferryd moves it
bool is_given_up = false;  // and the move has been given up

// 0, or -1 with an error in CRIU's log.
int request(MessageType type, std::span<const std::byte> body, const char* what) {
  Done reply;
  const int error = ferry::criu::ask(type, body, kTimeoutMs, &reply);
  if (error == 0 && reply.code == 0) return 0;
  print_on_level(kError, "Error (ferry): cannot %s process %d: %s\n", what, root,
                 error != 0 ? std::strerror(error) : reply.error.c_str());
  return -1;
}

// 0, or -1 with an error in CRIU's log.
int write_note(const std::string& note) {
  const int file = ::openat(criu_get_image_dir(), ferry::agent::kCheckpointFile,
                            O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && ::write(file, note.data(), note.size()) == static_cast<ssize_t>(note.size());
  const int error = errno;
  if (file >= 0 && ::close(file) == 0 && written) return 0;
  print_on_level(kError, "Error (ferry): cannot write %s: %s\n", ferry::agent::kCheckpointFile,
                 std::strerror(error));
  return -1;
}

// Gives the checkpoint's note; empty: the image has nothing of Ferry's.
std::string read_note() {
  std::string note(kMaxNote, '\0');
  const int file =
      ::openat(criu_get_image_dir(), ferry::agent::kCheckpointFile, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t length = ::read(file, note.data(), note.size());
  ::close(file);
  note.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return note;
}

// Called before anything is restored. Gives 0; or -1, and CRIU gives up.
int claim() {
  const std::string note = read_note();
  if (note.empty()) return 0;
  Done reply;
  const int error = ferry::criu::ask(
      MessageType::kClaim, ferry::agent::encode(ferry::agent::Claim{note}), kTimeoutMs, &reply);
  if (error == 0 && reply.code == 0) {
    claimed = note;
    is_of_move = reply.note == ferry::agent::kOfMove;
    return 0;
  }
  if (error != 0) {
    print_on_level(
        kError, "Error (ferry): the image is of RDMA, and no ferryd answers here (%s); start it\n",
        std::strerror(error));
  } else {
    print_on_level(kError, "Error (ferry): %s\n", reply.error.c_str());
  }
  return -1;
}

int pause_devices(int pid) {
  // The first process is the tree's root. With a freezer cgroup the others are frozen when their
  // turn comes: all are stopped now.
  if (stage != CR_PLUGIN_STAGE__DUMP || root != 0) return 0;
  root = pid;
  Done reply;
  const int error =
      ferry::criu::ask(MessageType::kPauseTree, ferry::agent::encode(ferry::agent::PauseTree{pid}),
                       kTimeoutMs, &reply);
  if (error == 0) {
    if (reply.code != 0) {
      print_on_level(kError, "Error (ferry): cannot stop RDMA of process %d: %s\n", pid,
                     reply.error.c_str());
      return -1;
    }
    has_ferryd = true;
    return reply.note.empty() ? 0 : write_note(reply.note);
  }
  if (!ferry::criu::tree_uses_ferry(pid)) return 0;
  print_on_level(kError,
                 "Error (ferry): process %d uses RDMA, and no ferryd answers here (%s); start it\n",
                 pid, std::strerror(error));
  return -1;
}

int checkpoint_devices(int pid) {
  if (stage != CR_PLUGIN_STAGE__DUMP || !has_ferryd || is_frozen) return 0;
  is_frozen = true;
  return request(MessageType::kFrozen, ferry::agent::encode(ferry::agent::Frozen{pid}), "freeze");
}

// Returns when the move is decided, however long that takes: only ferryd's records can tell how. True:
// its processes go on here.
bool await_decision(int pid) {
  const auto body = ferry::agent::encode(ferry::agent::Restored{claimed, pid, true});
  for (;;) {
    Done reply;
    const int error = ferry::criu::ask(MessageType::kRestored, body, -1, &reply);
    if (error == 0 && reply.code != EAGAIN) {
      if (reply.code == 0) return true;
      print_on_level(kError, "Error (ferry): it does not go on here: %s\n", reply.error.c_str());
      return false;
    }
    // ferryd has gone, or is about to: the next one knows.
    const timespec pause{0, 100000000};
    ::nanosleep(&pause, nullptr);
  }
}

// Called before any process runs: ferryd gives what the checkpoint had to these processes only.
int resume_devices_late(int pid) {
  print_on_level(kInfo, "ferry: process %d is about to run\n", pid);
  if (claimed.empty()) return 0;
  if (is_of_move) {
    // CRIU lets its processes run whatever this function gives; and a CRIU whose processes are killed
    // while it traces them waits for their threads for ever. So it lets them go stopped, and ferryd
    // removes them.
    is_given_up = is_given_up || !await_decision(pid);
    if (is_given_up) ::kill(pid, SIGSTOP);
    return is_given_up ? -1 : 0;
  }
  Done reply;
  const auto body = ferry::agent::encode(ferry::agent::Restored{claimed, pid, false});
  const int error = ferry::criu::ask(MessageType::kRestored, body, kTimeoutMs, &reply);
  if (error == 0 && reply.code == 0) return 0;
  print_on_level(kError, "Error (ferry): process %d stays without RDMA: %s\n", pid,
                 error != 0 ? std::strerror(error) : reply.error.c_str());
  return -1;
}

int init(int at) {
  stage = at;
  return stage == CR_PLUGIN_STAGE__RESTORE ? claim() : 0;
}

void fini(int at, int result) {
  if (at == CR_PLUGIN_STAGE__RESTORE && result < 0 && !claimed.empty()) {
    Done reply;
    ferry::criu::ask(MessageType::kRestoreFailed,
                     ferry::agent::encode(ferry::agent::RestoreFailed{claimed}), kTimeoutMs,
                     &reply);
  }
  if (at != CR_PLUGIN_STAGE__DUMP || !has_ferryd || result >= 0) return;
  request(MessageType::kDumpFailed, ferry::agent::encode(ferry::agent::DumpFailed{root}),
          "roll back");
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)
CR_PLUGIN_REGISTER("ferry", init, fini)
#pragma GCC visibility pop
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__PAUSE_DEVICES, pause_devices)
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__CHECKPOINT_DEVICES, checkpoint_devices)
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__RESUME_DEVICES_LATE, resume_devices_late)
