#include <dlfcn.h>

#include "rig.h"

namespace ferry::verbs {
namespace {

void* symbol(void* handle, const char* name) {
  return ::dlvsym(handle, name, "IBVERBS_1.1");
}

struct Library {
  explicit Library(const char* name, int flags = RTLD_NOW) : handle(::dlopen(name, flags)) {}
  ~Library() {
    if (handle) ::dlclose(handle);
  }
  void* handle;
};

TEST(Dlopen, LibibverbsIsUs) {
  // This program has the entry points itself, and libibverbs behind.
  for (const char* name :
       {"libibverbs.so.1", "libibverbs.so", "/usr/lib/nowhere/libibverbs.so.1"}) {
    Library library(name);
    ASSERT_NE(library.handle, nullptr) << name << ": " << ::dlerror();
    EXPECT_EQ(::dlsym(library.handle, "ibv_open_device"),
              reinterpret_cast<void*>(&ibv_open_device));
    EXPECT_NE(symbol(library.handle, "ibv_wc_status_str"), nullptr) << "the stock library's";
  }
  Library loaded("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(loaded.handle, nullptr);
}

TEST(Dlopen, OtherLibrariesAreLeftAlone) {
  Library library("libm.so.6");
  ASSERT_NE(library.handle, nullptr);
  EXPECT_NE(::dlsym(library.handle, "cos"), nullptr);
  Library program(nullptr);
  EXPECT_NE(program.handle, nullptr);
  Library missing("libibverbs.so.1.2.3");
  EXPECT_EQ(missing.handle, nullptr);
}

// Another namespace has no preloaded libraries.
TEST(Dlopen, OtherNamespacesAreLeftAlone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not know namespaces";
#endif
  void* other = ::dlmopen(LM_ID_NEWLM, "libibverbs.so.1", RTLD_NOW);
  ASSERT_NE(other, nullptr) << ::dlerror();
  EXPECT_NE(symbol(other, "ibv_open_device"), nullptr);
  EXPECT_NE(symbol(other, "ibv_open_device"), reinterpret_cast<void*>(&ibv_open_device));
  ::dlclose(other);
  void* here = ::dlmopen(LM_ID_BASE, "libibverbs.so.1", RTLD_NOW);
  ASSERT_NE(here, nullptr) << ::dlerror();
  EXPECT_EQ(::dlsym(here, "ibv_open_device"), reinterpret_cast<void*>(&ibv_open_device));
  ::dlclose(here);
}

}  // namespace
}  // namespace ferry::verbs
