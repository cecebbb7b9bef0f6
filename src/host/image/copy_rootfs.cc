#include "host/image/copy_rootfs.h"

#include <chrono>

#include "host/proc/process_facts.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kTellEvery{250};
// Passes while the program runs: the first is long, and what changes during it is left to the
// second.
constexpr int kPasses = 2;

}  // namespace

CopyRootfs::CopyRootfs(const std::string& helper, pid_t root, const Rootfs& rootfs,
                       const std::string& log)
    : root_(root),
      total_(rootfs.bytes),
      helper_(helper, RootfsHelper::Task::kPack, rootfs.folder, log) {}

// Adds the files that the container's processes have mapped, as the container names them. Names in
// other mounts are names of nothing in its root filesystem.
void CopyRootfs::look_at_mappings() {
  for (const pid_t pid : process_tree(root_)) {
    for (const auto& mapping : mappings_of(pid)) {
      if (mapping.is_shared && mapping.target.starts_with("/"))
        mapped_.insert("." + mapping.target);
    }
  }
}

void CopyRootfs::pass(ImageSender& sender, const std::function<void()>& after_each) {
  look_at_mappings();
  helper_.pack(mapped_, [&](std::span<const std::byte> piece) {
    sender.send_rootfs(piece);
    sent_ += piece.size();
    after_each();
  });
  sender.end_rootfs();
}

void CopyRootfs::run(ImageSender& sender, const Tell& tell, const std::function<void()>& go_on) {
  using Clock = std::chrono::steady_clock;
  auto told = Clock::now();
  for (int i = 0; i < kPasses; ++i) {
    go_on();
    pass(sender, [&] {
      if (Clock::now() - told < kTellEvery) return;
      go_on();
      tell(sent_);
      told = Clock::now();
    });
    tell(sent_);
  }
  sent_ahead_ = sent_;
}

void CopyRootfs::send_last(ImageSender& sender) {
  pass(sender, [] {});
}

}  // namespace ferry::host
