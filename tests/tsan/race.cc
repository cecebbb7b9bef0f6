// A race on purpose: that the sanitizer finds it shows that the options of the moves beside it do not make it blind.
#include <cstdio>
#include <thread>

int main() {
  int shared = 0;
  std::thread other([&] { ++shared; });
  ++shared;
  other.join();
  std::printf("%d\n", shared);
}
