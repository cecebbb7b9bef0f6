// The file in which a driver leaves its connections for the next one, and what else may be there.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>

#include "base/failure.h"
#include "chosen_engine.h"
#include "played.h"

namespace ferry::pipe {
namespace {

class RecordsTest : public testing::Test {
 protected:
  RecordsTest() {
    std::string folder = (std::filesystem::temp_directory_path() / "records.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw Failure("no temporary folder");
    folder_ = folder;
    file_ = folder_ + "/state";
  }
  ~RecordsTest() override { std::filesystem::remove_all(folder_); }

  // As a driver that was killed leaves it: with a connection of processes 11 and 12.
  void leave_file() {
    auto records = std::make_unique<Records>(file_);
    const auto engine = chosen_engine();
    Pool pool({});
    Driver::Settings settings;
    settings.records = std::move(records);
    Driver driver(settings, pool, *engine);
    PlayedProgram server(driver, network(1), 1, 0, 11), client(driver, network(2), 1, 0, 12);
    server.listening(address_of(1, 80));
    ASSERT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error, 0);
    client.rings_of_answer.clear();
  }
  static std::shared_ptr<PlayedNetwork> network(std::uint8_t number) {
    return std::make_shared<PlayedNetwork>(number, address_of(number, 0), Domain{1, 7, 0});
  }

  // A driver finds the file. How many connections it has.
  std::size_t found() const {
    const auto engine = chosen_engine();
    Pool pool({});
    Driver::Settings settings;
    settings.records = std::make_shared<Records>(file_);
    Driver driver(settings, pool, *engine);
    const std::size_t count = driver.connections();
    driver.has_ended({11, 0});
    driver.has_ended({12, 0});
    driver.give_up_absent();
    EXPECT_EQ(driver.connections(), 0U);
    EXPECT_EQ(pool.used(), 0U);
    PlayedProgram server(driver, network(1), 1, 0, 11), client(driver, network(2), 1, 0, 12);
    server.listening(address_of(1, 80));
    EXPECT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error, 0);
    client.rings_of_answer.clear();
    client.end();
    server.end();
    return count;
  }

  void write(std::streamoff at, const std::string& text) const {
    std::fstream(file_, std::ios::in | std::ios::out | std::ios::binary).seekp(at) << text;
  }

  std::string folder_, file_;
};

TEST_F(RecordsTest, ConnectionsAreThereForTheNext) {
  leave_file();
  EXPECT_EQ(found(), 1U);
  EXPECT_FALSE(std::filesystem::exists(file_)) << "nothing is in it";
}

TEST_F(RecordsTest, NumbersGoOn) {
  {
    Records records(file_);
    EXPECT_EQ(records.next_session(), 1U);
    EXPECT_EQ(records.next_order(), 1U);
    ConnectionRecord& record = records.at(7);
    for (int side = 0; side < 2; ++side) {
      record.addresses[side] = address_of(1, 80);
      record.ends[side].process = {1, 1};
      record.ends[side].state = EndRecord::kClosed;
    }
    record.used = 1;
  }
  Records records(file_);
  EXPECT_EQ(records.places(), 8U);
  EXPECT_EQ(records.at(7).used, 1U);
  EXPECT_EQ(records.next_session(), 2U);
  EXPECT_EQ(records.next_order(), 2U);
}

TEST_F(RecordsTest, WhatIsNotOfADriverBeforeIsNotTaken) {
  const struct {
    const char* what;
    std::function<void()> change;
  } wrong[] = {
      {"another release", [&] { write(0, "another release"); }},
      {"another boot", [&] { write(8, "another boot"); }},
      {"too short", [&] { std::filesystem::resize_file(file_, 1000); }},
      {"without the last byte",
       [&] { std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 1); }},
      {"empty", [&] { std::filesystem::resize_file(file_, 0); }},
      {"zeroes",
       [&] {
         const auto size = std::filesystem::file_size(file_);
         std::filesystem::resize_file(file_, 0);
         std::filesystem::resize_file(file_, size);
       }},
      {"others may read it", [&] { ::chmod(file_.c_str(), 0644); }},
      {"of another user",
       [&] {
         if (::geteuid() == 0) {
           EXPECT_EQ(::chown(file_.c_str(), 65534, 65534), 0);
         } else {
           ::chmod(file_.c_str(), 0666);
         }
       }},
      {"a link",
       [&] {
         std::filesystem::rename(file_, folder_ + "/elsewhere");
         std::filesystem::create_symlink("elsewhere", file_);
       }},
      {"a pipe",
       [&] {
         std::filesystem::remove(file_);
         EXPECT_EQ(::mkfifo(file_.c_str(), 0600), 0);
       }},
      {"the first byte of many is other", [&] { write(100, std::string(2000, '\x7f')); }},
  };
  for (const auto& each : wrong) {
    SCOPED_TRACE(each.what);
    leave_file();
    each.change();
    EXPECT_EQ(found(), 0U);
    std::filesystem::remove(file_);
  }
  std::filesystem::create_directory(file_);
  EXPECT_THROW(Records{file_}, Failure);
}

// Whatever is in it: with FERRY_PIPE_SEED=N that of one seed.
TEST_F(RecordsTest, NoDamageIsACrash) {
  const char* only = ::getenv("FERRY_PIPE_SEED");
  const unsigned first = only ? static_cast<unsigned>(std::atoi(only)) : 1, count = only ? 1 : 200;
  for (unsigned seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FERRY_PIPE_SEED=" + std::to_string(seed));
    std::minstd_rand random(seed);
    leave_file();
    for (int times = 0; times < 4; ++times) {
      std::string bytes;
      for (int byte = 0; byte < 4; ++byte) bytes += static_cast<char>(random() >> 8);
      // What the file has of its header behind the boot, and of its first connection.
      write(72 + static_cast<std::streamoff>(random() % 500), bytes.substr(0, 1 + random() % 4));
    }
    found();
    std::filesystem::remove(file_);
    if (HasFailure()) return;
  }
}

// True: in a child, which has a file system of its own of `size` at the folder.
bool in_file_system(const std::string& folder, const char* size,
                    const std::function<bool()>& call) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("none", folder.c_str(), "tmpfs", 0, size) == 0;
    ::_exit(!mounted ? 2 : call() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_NE(WEXITSTATUS(status), 2) << "no file system";
  return status == 0;
}

TEST_F(RecordsTest, AFullFileSystemIsNoCrash) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_TRUE(in_file_system(folder_, "size=16k", [&] {
    try {
      const Records records(file_);
      return false;
    } catch (const Failure&) {
      return true;
    }
  }));
  EXPECT_TRUE(in_file_system(folder_, "size=1M", [&] {
    Records records(file_);
    std::size_t place = 0;
    for (; place < Records::kMost && records.make_room(place); ++place) {
      records.at(static_cast<std::uint16_t>(place)).order = 1;
    }
    return place >= 1024 && place < Records::kMost;
  }));
}

}  // namespace
}  // namespace ferry::pipe
