#include "host/checkpoint/take.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/failure.h"
#include "base/parallel.h"
#include "base/unique_fd.h"
#include "ferry.pb.h"
#include "host/checkpoint/facts.h"
#include "host/journal/decision_log.h"
#include "host/move/source/departures.h"
#include "host/move/source/group/cut.h"
#include "host/peers/this_host.h"
#include "store/new_checkpoint.h"
#include "store/store.h"

namespace ferry::host {
namespace {

constexpr std::size_t kPiece = 1 << 20;  // bytes that are read at once

void write_file(store::ImageWriter& writer, const ImageFile& file) {
  const UniqueFd open(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!open || ::fstat(open.get(), &facts) != 0) {
    throw Failure(fmt::format("cannot read {}: {}", file.path, error_text(errno)));
  }
  writer.begin_file(file.name, facts.st_mode & 0777);
  std::vector<std::byte> buffer(kPiece);
  for (;;) {
    const ssize_t size = ::read(open.get(), buffer.data(), buffer.size());
    if (size == 0) return;
    if (size < 0) throw Failure(fmt::format("cannot read {}: {}", file.path, error_text(errno)));
    writer.write(std::span(buffer).first(static_cast<std::size_t>(size)));
  }
}

// The images of all programs side by side; an image's folder goes with it.
store::Manifest store_parts(const ThisHost& host, store::NewCheckpoint& fresh,
                            const std::vector<Cut::Part>& parts) {
  struct Job {
    const Cut::Part& part;
    store::ImageWriter& writer;
  };
  std::vector<Job> jobs;
  std::vector<store::Program> programs;
  for (const auto& part : parts) {
    jobs.push_back({part, fresh.add_image()});
    programs.push_back({part.program, host.name, to_json(facts_of(part)), {}, {}});
  }
  in_parallel(jobs, [](const Job& job) {
    for (const auto& file : job.part.files) write_file(job.writer, file);
    job.writer.end();
  });
  return fresh.complete(host.version, std::move(programs));
}

// Takes away the images that the programs have left.
class LeftImages {
 public:
  explicit LeftImages(const Cut& cut) : cut_(cut) {}
  LeftImages(const LeftImages&) = delete;
  ~LeftImages() {
    std::error_code ignored;
    for (const auto& part : cut_.parts()) std::filesystem::remove_all(part.images, ignored);
  }

 private:
  const Cut& cut_;
};

std::multiset<std::string> names_of(const store::Manifest& manifest) {
  std::multiset<std::string> names;
  for (const auto& program : manifest.programs) names.insert(program.name);
  return names;
}

// Deletes older checkpoints of the same programs.
void keep_latest(const std::string& directory, const store::Manifest& latest, std::size_t keep) {
  const store::Store store(directory);
  std::vector<std::string> same;
  for (const auto& entry : store.list()) {
    if (entry.manifest && names_of(*entry.manifest) == names_of(latest)) same.push_back(entry.id);
  }
  for (std::size_t i = 0; i + keep < same.size(); ++i) store.remove(same[i]);
}

}  // namespace

v1::CheckpointReport take_checkpoint(const ThisHost& host, Departures& departures, uid_t user,
                                     std::vector<MoveGroup::Program> programs,
                                     const v1::CheckpointRequest& request) {
  const std::string id = fmt::format("{:016x}", new_move_id());
  // Before anything is stopped: whether something can be written there at all.
  store::NewCheckpoint fresh(request.directory(), id);
  std::optional<store::Manifest> manifest;
  Cut::Finish finish;
  if (request.stop()) {
    finish = [&](const std::vector<Cut::Part>& parts) {
      manifest = store_parts(host, fresh, parts);
    };
  }
  MoveOptions options;
  options.cut = std::make_shared<Cut>(programs.size(), std::move(finish));
  const LeftImages left(*options.cut);
  v1::CheckpointReport report;
  const auto began = std::chrono::steady_clock::now();
  report.set_standstill_ms(departures.checkpoint(user, std::move(programs), host.address, options));
  if (!manifest) manifest = store_parts(host, fresh, options.cut->parts());
  report.set_store_ms(milliseconds_between(began, std::chrono::steady_clock::now()));
  report.set_id(id);
  report.set_host(host.name);
  for (const auto& program : manifest->programs) report.add_programs(program.name);
  report.set_image_bytes(manifest->content());
  report.set_stored_bytes(manifest->stored());
  try {
    if (request.keep() > 0) keep_latest(request.directory(), *manifest, request.keep());
  } catch (const Failure& failure) {
    report.set_not_deleted(failure.what());  // the checkpoint is there all the same
  }
  return report;
}

}  // namespace ferry::host
