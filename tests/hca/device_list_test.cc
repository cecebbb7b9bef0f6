// The device lists of a program with a device of the kernel. The stock library is played
// (tests/verbs/played_stock.cmake): run under LD_PRELOAD=libferry.so:libplayed_stock.so and with
// FERRY_DEVICE=played0,played0.
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>

namespace {

ibv_device first, second;         // one after the other is the machine's "played0"
ibv_device* plugged = &first;     // null: none is
std::set<std::uint64_t> lists;    // of the stock library, not freed
std::uint64_t opened_device = 0;  // what the stock library was told to open
int failures = 0;

void expect(bool good, const char* what) {
  if (good) return;
  ++failures;
  std::printf("FAILED: %s\n", what);
}

std::uint64_t make_list(int* count) {
  auto** list = new ibv_device* [2] { plugged, nullptr };
  *count = plugged ? 1 : 0;
  lists.insert(reinterpret_cast<std::uintptr_t>(list));
  return reinterpret_cast<std::uintptr_t>(list);
}

// The only device of the list, which the program frees; null: it has none.
ibv_device* only_device() {
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  expect(list != nullptr, "there is a list");
  expect(count == (plugged ? 1 : 0), "the list has each device once");
  ibv_device* device = list[0];
  ibv_free_device_list(list);
  return device;
}

}  // namespace

extern "C" std::uint64_t played_call(const char* name, const std::uint64_t* arguments) {
  if (std::strcmp(name, "ibv_get_device_list") == 0)
    return make_list(reinterpret_cast<int*>(arguments[0]));
  if (std::strcmp(name, "ibv_free_device_list") == 0)
    expect(lists.erase(arguments[0]) == 1, "a list is freed once");
  if (std::strcmp(name, "ibv_open_device") == 0) opened_device = arguments[0];
  return 0;
}

int main() {
  std::strcpy(first.name, "played0");
  std::strcpy(first.dev_name, "uverbs0");
  std::strcpy(second.name, "played0");
  std::strcpy(second.dev_name, "uverbs1");

  ibv_device* const device = only_device();
  expect(device != nullptr && device != &first, "the device is Ferry's");
  expect(lists.size() == 1, "the list of the device is kept");
  for (int i = 0; i < 3; ++i) expect(only_device() == device, "the device stays the same");
  expect(lists.size() == 1, "no further list is kept");

  plugged = nullptr;
  expect(only_device() == nullptr, "there is no device without the stock library's");
  plugged = &second;
  ibv_device* const other = only_device();
  expect(other != nullptr && other != device, "a device that was plugged in again is another one");
  if (other == nullptr) return 1;
  expect(std::strcmp(other->dev_name, "uverbs1") == 0, "it has a node of its own");
  expect(lists.size() == 2, "the list of the second device is kept as well");
  expect(only_device() == other && lists.size() == 2, "also the second device stays the same");

  expect(ibv_open_device(other) == nullptr, "the played library opens nothing");
  expect(opened_device == reinterpret_cast<std::uintptr_t>(&second), "the second one is opened");
  expect(ibv_open_device(device) == nullptr, "the played library opens nothing");
  expect(opened_device == reinterpret_cast<std::uintptr_t>(&first), "the first one is opened");
  if (failures == 0) std::printf("ok\n");
  return failures == 0 ? 0 : 1;
}
