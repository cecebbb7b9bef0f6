#include "host/checkpoint/take/local_part.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "base/failure.h"
#include "base/parallel.h"
#include "base/unique_fd.h"
#include "host/checkpoint/facts.h"
#include "host/checkpoint/take/stored_memory.h"
#include "host/move/source/departures.h"
#include "host/peers/this_host.h"
#include "store/store.h"

namespace ferry::host {
namespace {

constexpr std::size_t kPiece = 1 << 20;          // bytes that are read at once
constexpr std::chrono::milliseconds kLook{20};   // between looks whether the group is given up
constexpr std::chrono::seconds kFreezeTime{20};  // CRIU's plugin waits for 30
constexpr std::chrono::hours kLongest{24};  // what an image may take to be stored on another host
constexpr char kGivenUp[] = "the checkpoint is given up";

}  // namespace

LocalPart::LocalPart(const ThisHost& host, Departures& departures, ControlServer& control,
                     uid_t user, std::vector<MoveGroup::Program> programs, bool stop,
                     TellBytes tell)
    : host_(host),
      departures_(departures),
      control_(control),
      user_(user),
      programs_(std::move(programs)),
      tell_(std::move(tell)),
      cut_(std::make_shared<Cut>(programs_.size(), stop, owner())) {}

LocalPart::~LocalPart() {
  give_up();
  if (run_.valid()) run_.wait();
  std::error_code ignored;
  for (const auto& part : cut_->parts()) std::filesystem::remove_all(part.images, ignored);
}

void LocalPart::give_up() {
  std::unique_lock lock(mutex_);
  is_given_up_ = true;
  if (reached_ == Stage::kOver) return;
  const auto moves = moves_;
  lock.unlock();
  // What copies memory or stops programs ends by that; who waits for other hosts, or stores, looks by itself.
  for (const auto& move : moves) move->give_up();
  changed_.notify_all();
}

std::vector<Connection> LocalPart::look(const std::string& directory, const std::string& id,
                                        std::uint32_t first,
                                        const std::optional<store::ContentKey>& key) {
  if (!std::filesystem::exists(store::partial_path(directory, id))) {
    throw Failure(fmt::format(
        "{} is not the folder in which the checkpoint has begun; all hosts need the same one "
        "there, on NFS for example",
        printable(directory)));
  }
  directory_ = directory;
  key_ = key;
  images_.emplace(directory, id, first, store::kShardBytes, key);
  return connections_of(control_, programs_);
}

Cut::Owner LocalPart::owner() {
  const auto checked = [this](const Cut::NeedOpen& need_open) {
    wait_for_all(Stage::kChecked, Stage::kFrozen, kLongest, need_open);
  };
  const auto frozen = [this](const Cut::NeedOpen& need_open) {
    wait_for_all(Stage::kFrozen, Stage::kDumped, kFreezeTime, need_open);
  };
  const auto dumped = [this] { wait_for_all(Stage::kDumped, Stage::kOver, kLongest, [] {}); };
  const auto copied = [this](std::size_t program, std::uint64_t bytes, std::uint64_t of) {
    this->copied(program, {bytes, of});
  };
  return {checked, frozen, dumped, copied};
}

// The programs have come to `here`. Returns when those of all hosts have, so that they may come to `next`.
void LocalPart::wait_for_all(Stage here, Stage next, std::chrono::seconds limit,
                             const Cut::NeedOpen& need_open) {
  reach(here);
  const auto until = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return is_given_up_ || allowed_ >= next; })) {
    lock.unlock();
    need_open();
    lock.lock();
    if (std::chrono::steady_clock::now() < until) continue;
    throw Failure(
        fmt::format("the programs of other hosts are not as far after {} s", limit.count()));
  }
  if (allowed_ < next) throw Failure(kGivenUp);
}

void LocalPart::check() {
  need_wanted();
  MoveOptions options;
  options.cut = cut_;
  auto moves = departures_.begin(user_, programs_, host_.address, options);
  {
    std::lock_guard lock(mutex_);
    moves_ = std::move(moves);
  }
  run_ = std::async(std::launch::async, [this] { run(); });
  bool is_late = false;
  {
    std::lock_guard lock(mutex_);
    is_late = is_given_up_;
  }
  if (is_late) give_up();
  await(Stage::kChecked);
}

void LocalPart::freeze() {
  allow(Stage::kFrozen);
  await(Stage::kFrozen);
}

void LocalPart::run() {
  std::unique_lock lock(mutex_);
  auto moves = moves_;
  lock.unlock();
  try {
    standstill_ms_ = departures_.checkpoint(moves, *cut_);
  } catch (const std::exception& failure) {
    failure_ = failure.what();
  }
  lock.lock();
  moves_.clear();
  lock.unlock();
  moves.clear();
  reach(Stage::kOver);
}

void LocalPart::reach(Stage stage) {
  std::lock_guard lock(mutex_);
  reached_ = stage;
  changed_.notify_all();
}

void LocalPart::await(Stage stage) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached_ >= stage; });
  if (reached_ == Stage::kOver && !failure_.empty()) throw Failure(failure_);
}

void LocalPart::allow(Stage stage) {
  std::lock_guard lock(mutex_);
  allowed_ = stage;
  changed_.notify_all();
}

void LocalPart::dump() {
  allow(Stage::kDumped);
  await(Stage::kDumped);
}

double LocalPart::end() {
  allow(Stage::kOver);
  await(Stage::kOver);
  return standstill_ms_;
}

void LocalPart::need_wanted() {
  std::lock_guard lock(mutex_);
  if (is_given_up_) throw Failure(kGivenUp);
}

// By the threads that copy.
void LocalPart::copied(std::size_t program, const StepBytes& bytes) {
  std::lock_guard lock(mutex_);
  copied_[program] = bytes;
  StepBytes sum;
  for (const auto& [number, each] : copied_) {
    sum.done += each.done;
    sum.total += each.total;
  }
  tell_(sum);
}

void LocalPart::write_file(store::ImageWriter& writer, const ImageFile& file, StoredBytes& stored) {
  const UniqueFd open(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!open || ::fstat(open.get(), &facts) != 0) {
    throw Failure(fmt::format("cannot read {}: {}", file.path, error_text(errno)));
  }
  writer.begin_file(file.name, facts.st_mode & 0777);
  stored.expect(static_cast<std::uint64_t>(facts.st_size));
  std::vector<std::byte> buffer(kPiece);
  for (;;) {
    need_wanted();
    const ssize_t size = ::read(open.get(), buffer.data(), buffer.size());
    if (size == 0) return;
    if (size < 0) throw Failure(fmt::format("cannot read {}: {}", file.path, error_text(errno)));
    writer.write(std::span(buffer).first(static_cast<std::size_t>(size)));
    stored.add(static_cast<std::uint64_t>(size));
  }
}

// The images of all programs side by side.
std::vector<store::Program> LocalPart::store() {
  struct Job {
    const Cut::Part& part;
    store::ImageWriter& writer;
    store::Program& program;
  };
  const auto parts = cut_->parts();
  std::vector<store::Program> programs(parts.size());
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    programs[i].name = parts[i].program;
    programs[i].host = host_.name;
    programs[i].facts = to_json(facts_of(parts[i], host_.address));
    jobs.push_back({parts[i], images_->add(), programs[i]});
  }
  const auto known = store::Store(directory_).list();
  StoredBytes stored(tell_);
  for (const auto& part : parts) stored.expect(memory_to_store(part));
  in_parallel(jobs, [&](const Job& job) {
    const FormerMemory former(directory_, known, job.part, host_.name, key_);
    write_memory(job.writer, job.part, former, stored, [this] { need_wanted(); });
    for (const auto& file : job.part.files) write_file(job.writer, file, stored);
    job.writer.end(&job.program);
  });
  return programs;
}

}  // namespace ferry::host
