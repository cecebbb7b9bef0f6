#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/image/image_stream.h"
#include "host/journal/process_slots.h"
#include "host/peers/messages.h"
#include "host/proc/written_files.h"
#include "precopy/page_store.h"

// The moment of which a checkpoint is: all programs of a group are frozen, and then dumped, before one of them goes on.
// Their images stay where they were dumped to, and the group is given up, as a move that fails is: then the programs go
// on here, or end.
namespace ferry::host {

// Why a program has no checkpoint that uses this device of the kernel.
std::string no_checkpoint(const std::string& program, const std::string& device);

class Cut {
 public:
  // What a program leaves in it.
  struct Part {
    std::uint64_t move_id = 0;
    std::string program;
    std::string images;            // the folder
    std::vector<ImageFile> files;  // in it
    std::shared_ptr<const v1::CheckRequest> check;
    std::vector<ProcessSlots> places;          // of its RNICs
    std::map<pid_t, std::uint64_t> processes;  // and their start_time()
    std::vector<WrittenFile> written;
    // Pages that the image has not, by process, and where they are; null: it has all.
    std::map<std::int32_t, precopy::PageRanges> left_out;
    std::shared_ptr<const precopy::PageStore> memory;
  };
  // Throws when the group is given up.
  using NeedOpen = std::function<void()>;

  // Whoever takes the checkpoint. Each is called once, by one of the programs, while all wait, and may throw: then the
  // group is given up.
  struct Owner {
    using Call = std::function<void(const NeedOpen& need_open)>;
    Call checked;                  // nothing is in the way; when it returns they are stopped
    Call frozen;                   // all are frozen; when it returns they are dumped
    std::function<void()> dumped;  // parts() are those of all; when it returns they go on, or end
    // Again and again while the memory of the program with this index is copied ahead, by its thread: so many bytes of
    // `of` are copied, of all rounds so far.
    std::function<void(std::size_t program, std::uint64_t bytes, std::uint64_t of)> copied = {};
  };

  // `programs`: of the group. `ends_programs`: they do not go on here.
  Cut(std::size_t programs, bool ends_programs, Owner owner)
      : programs_(programs), ends_programs_(ends_programs), owner_(std::move(owner)) {}

  void copied(std::size_t program, std::uint64_t bytes, std::uint64_t of) const {
    if (owner_.copied) owner_.copied(program, bytes, of);
  }
  // The program with this index is checked, and all is prepared for its stop. Returns and throws as freeze().
  void check(std::size_t program, const NeedOpen& need_open);

  // The program with this index is frozen, and not dumped yet. Returns when that holds for all: none is dumped while
  // another one could still write to a file or a peer of it. Throws what `need_open` throws, or the owner has.
  void freeze(std::size_t program, const NeedOpen& need_open);

  // The image of the program is complete. Returns when that holds for all, and Owner::dumped has returned. That the
  // group is given up has no effect any more once all have joined. Throws Failure to all of them, or to none.
  void join(std::size_t program, Part part, const NeedOpen& need_open);

  bool is_full() const;   // all have joined, and Owner::dumped has not returned
  bool is_taken() const;  // it has
  bool ends_programs() const { return ends_programs_; }
  std::vector<Part> parts() const;  // once it is full: of all programs, in their order

 private:
  struct Meeting {
    std::set<std::size_t> there;
    bool is_over = false;
  };

  void meet(Meeting& meeting, std::size_t program, const Owner::Call& owner,
            const NeedOpen& need_open);
  // These three with the mutex; fill() without it for as long as the owner is at work.
  bool has_all() const { return parts_.size() == programs_; }
  void fill(std::unique_lock<std::mutex>& lock);
  void end(const std::string& failure);

  const std::size_t programs_;
  const bool ends_programs_;
  const Owner owner_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Meeting checked_, frozen_;
  std::map<std::size_t, Part> parts_;
  bool is_over_ = false;
  std::string failure_;  // when it is over: why it is not taken
};

}  // namespace ferry::host
