#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace ferry::store {

// 256 random bits with which the content of checkpoints is encrypted. It is wiped when it goes.
class ContentKey {
 public:
  static constexpr std::size_t kBytes = 32;

  static ContentKey random();
  // Throws Failure for any other length.
  explicit ContentKey(std::string_view bytes);
  ContentKey(const ContentKey&) = default;
  ContentKey& operator=(const ContentKey&) = default;
  ~ContentKey();

  bool operator==(const ContentKey& other) const;

  std::string_view bytes() const;
  // Another key, for `purpose`; who has it does not learn this one (HKDF-SHA256).
  ContentKey derived(std::string_view purpose, std::string_view salt = {}) const;
  // HMAC-SHA256, as 64 hexadecimal digits.
  std::string mac(std::string_view text) const;
  bool has_made(std::string_view mac, std::string_view text) const;

 private:
  ContentKey() = default;

  std::array<char, kBytes> bytes_{};
};

// Overwrites a key that was in a message.
void wipe(std::string* text);

}  // namespace ferry::store
