// Loads the plugin as CRIU does and calls its hooks.

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "criu/talk.h"
#include "played_ferryd.h"

extern "C" {
#include <criu-plugin.h>

// Of LeakSanitizer, where it is linked.
__attribute__((weak)) void __lsan_disable();
__attribute__((weak)) void __lsan_enable();

static std::string* logged = nullptr;
static int image_folder = -1;

__attribute__((visibility("default"))) int criu_get_image_dir(void) {
  return image_folder;
}

__attribute__((visibility("default"))) void print_on_level(unsigned int level, const char* format,
                                                           ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (level == 1 && logged != nullptr) *logged += text;
}
}

namespace ferry::criu {
namespace {

using agent::MessageType;
using test::PlayedFerryd;

// A child whose thread has the name of the library's agent thread, or not.
class Program {
 public:
  explicit Program(bool uses_ferry) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      pthread_t thread;
      const auto body = [](void* name) -> void* {
        ::prctl(PR_SET_NAME, name);
        for (;;) ::pause();
      };
      ::pthread_create(&thread, nullptr, body,
                       const_cast<char*>(uses_ferry ? "ferry-agent" : "other"));
      ::usleep(20000);
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Program() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

struct PluginTest : testing::Test {
  std::string errors;
  void* library = nullptr;
  cr_plugin_desc_t* plugin = nullptr;

  void SetUp() override {
    logged = &errors;
    ::setenv(agent::kSocketVariable, "/nonexistent/ferryd.sock", 1);
    // The plugin's own libstdc++ allocates once per load and never frees.
    if (__lsan_disable != nullptr) __lsan_disable();
    library = ::dlopen(PLUGIN, RTLD_NOW);
    if (__lsan_enable != nullptr) __lsan_enable();
    ASSERT_NE(library, nullptr) << ::dlerror();
    plugin = static_cast<cr_plugin_desc_t*>(::dlsym(library, "CR_PLUGIN_DESC"));
    ASSERT_NE(plugin, nullptr);
  }
  void TearDown() override {
    logged = nullptr;
    ::dlclose(library);  // a fresh one for the next test, as for the next CRIU
  }
  int call(int hook, int pid) { return reinterpret_cast<int (*)(int)>(plugin->hooks[hook])(pid); }
  int pause(int pid) { return call(CR_PLUGIN_HOOK__PAUSE_DEVICES, pid); }
  int checkpoint(int pid) { return call(CR_PLUGIN_HOOK__CHECKPOINT_DEVICES, pid); }
  int resume(int pid) { return call(CR_PLUGIN_HOOK__RESUME_DEVICES_LATE, pid); }
};

TEST_F(PluginTest, StopsTheTreeOnceAndMarksItOnce) {
  PlayedFerryd ferryd;
  EXPECT_EQ(plugin->version, static_cast<unsigned>(CRIU_PLUGIN_VERSION));
  EXPECT_EQ(plugin->init(CR_PLUGIN_STAGE__DUMP), 0);
  EXPECT_EQ(pause(100), 0);
  EXPECT_EQ(pause(101), 0);
  EXPECT_EQ(checkpoint(100), 0);
  EXPECT_EQ(checkpoint(101), 0);
  plugin->exit(CR_PLUGIN_STAGE__DUMP, 0);
  const auto asked = ferryd.asked();
  ASSERT_EQ(asked.size(), 2u);
  agent::PauseTree tree;
  EXPECT_EQ(asked[0].type, MessageType::kPauseTree);
  EXPECT_TRUE(agent::parse(asked[0].body, &tree));
  EXPECT_EQ(tree.pid, 100);
  EXPECT_EQ(asked[1].type, MessageType::kFrozen);
}

// The folder of an image.
struct Image {
  Image() {
    char name[] = "/tmp/ferry-image.XXXXXX";
    path = ::mkdtemp(name);
    image_folder = ::open(path.c_str(), O_DIRECTORY | O_CLOEXEC);
  }
  ~Image() {
    ::close(image_folder);
    image_folder = -1;
    std::filesystem::remove_all(path);
  }
  std::string note() const {
    std::ifstream in(path + "/ferry.img");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& note) { std::ofstream(path + "/ferry.img") << note; }
  std::string path;
};

TEST_F(PluginTest, PutsTheNoteIntoTheImage) {
  PlayedFerryd ferryd;
  Image image;
  ferryd.answer({0, "", "a note\nof two lines\n"});
  plugin->init(CR_PLUGIN_STAGE__DUMP);
  EXPECT_EQ(pause(100), 0);
  EXPECT_EQ(image.note(), "a note\nof two lines\n");
}

TEST_F(PluginTest, FailsTheDumpWhenTheNoteCannotBeWritten) {
  PlayedFerryd ferryd;
  ferryd.answer({0, "", "a note"});
  plugin->init(CR_PLUGIN_STAGE__DUMP);
  EXPECT_EQ(pause(100), -1);
  EXPECT_EQ(errors, "Error (ferry): cannot write ferry.img: Bad file descriptor\n");
  plugin->exit(CR_PLUGIN_STAGE__DUMP, -1);
  ASSERT_EQ(ferryd.asked().size(), 2u);
  EXPECT_EQ(ferryd.asked()[1].type, MessageType::kDumpFailed);
}

TEST_F(PluginTest, ClaimsWhatItRestores) {
  PlayedFerryd ferryd;
  Image image;
  image.write("a note");
  EXPECT_EQ(plugin->init(CR_PLUGIN_STAGE__RESTORE), 0);
  EXPECT_EQ(resume(101), 0);
  plugin->exit(CR_PLUGIN_STAGE__RESTORE, 0);
  const auto asked = ferryd.asked();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1].type, MessageType::kRestored);
  agent::Restored restored;
  EXPECT_TRUE(agent::parse(asked[1].body, &restored));
  EXPECT_EQ(restored.note, "a note");
  EXPECT_EQ(restored.pid, 101);
  EXPECT_EQ(asked[0].type, MessageType::kClaim);
  agent::Claim claim;
  EXPECT_TRUE(agent::parse(asked[0].body, &claim));
  EXPECT_EQ(claim.note, "a note");
}

TEST_F(PluginTest, GivesItsClaimBackWhenTheRestoreFails) {
  PlayedFerryd ferryd;
  Image image;
  image.write("a note");
  plugin->init(CR_PLUGIN_STAGE__RESTORE);
  plugin->exit(CR_PLUGIN_STAGE__RESTORE, -1);
  ASSERT_EQ(ferryd.asked().size(), 2u);
  EXPECT_EQ(ferryd.asked()[1].type, MessageType::kRestoreFailed);
}

TEST_F(PluginTest, RestoresNothingWithoutAClaim) {
  Image image;
  image.write("a note");
  {
    PlayedFerryd ferryd;
    ferryd.answer({EIO, "it was restored on h3 already", ""});
    EXPECT_EQ(plugin->init(CR_PLUGIN_STAGE__RESTORE), -1);
    plugin->exit(CR_PLUGIN_STAGE__RESTORE, -1);
    EXPECT_EQ(errors, "Error (ferry): it was restored on h3 already\n");
    EXPECT_EQ(ferryd.asked().size(), 1u);  // there is none to give back
  }
  EXPECT_EQ(plugin->init(CR_PLUGIN_STAGE__RESTORE), -1);
  EXPECT_NE(errors.find("no ferryd answers here"), std::string::npos);
}

TEST_F(PluginTest, TellsOfAFailedDump) {
  PlayedFerryd ferryd;
  plugin->init(CR_PLUGIN_STAGE__DUMP);
  pause(100);
  plugin->exit(CR_PLUGIN_STAGE__DUMP, -1);
  const auto asked = ferryd.asked();
  ASSERT_EQ(asked.size(), 2u);
  agent::DumpFailed failed;
  EXPECT_EQ(asked[1].type, MessageType::kDumpFailed);
  EXPECT_TRUE(agent::parse(asked[1].body, &failed));
  EXPECT_EQ(failed.pid, 100);
}

TEST_F(PluginTest, FailsTheDumpWhenRdmaCannotStop) {
  PlayedFerryd ferryd;
  ferryd.answer({EIO, "it is busy", ""});
  plugin->init(CR_PLUGIN_STAGE__DUMP);
  EXPECT_EQ(pause(100), -1);
  EXPECT_EQ(errors, "Error (ferry): cannot stop RDMA of process 100: it is busy\n");
  plugin->exit(CR_PLUGIN_STAGE__DUMP, -1);
  EXPECT_EQ(ferryd.asked().size(), 1u);  // nothing was stopped, nothing to roll back
}

TEST_F(PluginTest, WithoutFerrydOnlyFerrysProgramsFail) {
  Program stranger(false), ours(true);
  plugin->init(CR_PLUGIN_STAGE__DUMP);
  EXPECT_EQ(pause(stranger.pid()), 0);
  EXPECT_EQ(checkpoint(stranger.pid()), 0);
  plugin->exit(CR_PLUGIN_STAGE__DUMP, -1);
  EXPECT_EQ(errors, "");
  EXPECT_TRUE(uses_ferry(ours.pid()));
  EXPECT_FALSE(uses_ferry(stranger.pid()));
  EXPECT_TRUE(tree_uses_ferry(::getpid()));
}

TEST_F(PluginTest, WithoutFerrydAProgramOfFerrysIsNotDumped) {
  Program ours(true);
  plugin->init(CR_PLUGIN_STAGE__DUMP);
  EXPECT_EQ(pause(ours.pid()), -1);
  EXPECT_NE(errors.find("uses RDMA, and no ferryd answers here"), std::string::npos);
}

TEST_F(PluginTest, OtherStagesAreNotItsBusiness) {
  PlayedFerryd ferryd;
  for (const int stage : {CR_PLUGIN_STAGE__PRE_DUMP, CR_PLUGIN_STAGE__RESTORE}) {
    plugin->init(stage);
    EXPECT_EQ(pause(100), 0);
    EXPECT_EQ(checkpoint(100), 0);
    EXPECT_EQ(resume(100), 0);
    plugin->exit(stage, -1);
  }
  EXPECT_TRUE(ferryd.asked().empty());
}

}  // namespace
}  // namespace ferry::criu
