#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/content_key.h"

// Files that are encrypted as they are written: a header, and then chunks that are authenticated one by one
// (AES-256-GCM). Each file has a key of its own, which follows from the content key, from where the file belongs, and
// from random bytes in its header. A nonce is the chunk's number, and says whether it is the last one.
namespace ferry::store {

using TakesBytes = std::function<void(std::span<const std::byte> bytes)>;

// Whether a file that begins like this was written by a Sealer, as far as that can be known without a key.
bool begins_sealed(std::span<const std::byte> begin);

// One chunk after the other.
class ChunkCipher {
 public:
  // `place`: where the file belongs. Throws std::bad_alloc.
  ChunkCipher(const ContentKey& key, std::string_view place, std::string header, bool is_writing);

  // The next chunk, and its tag.
  void seal(std::span<const std::byte> content, bool is_last, std::vector<std::byte>* sealed);
  // False: it is not what was sealed as this chunk.
  bool open(std::span<const std::byte> sealed, bool is_last, std::vector<std::byte>* content);

 private:
  void begin(bool is_last);

  const std::string header_;
  const std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> cipher_;
  std::uint64_t number_ = 0;  // of the chunk
};

class Sealer {
 public:
  // Gives `take` what is to be written. `place`: where the file belongs.
  Sealer(const ContentKey& key, std::string_view place, TakesBytes take);

  void add(std::span<const std::byte> content);
  // All has been added.
  void end();

 private:
  Sealer(const ContentKey& key, std::string_view place, TakesBytes take, std::string header);
  void write(bool is_last);

  const TakesBytes take_;
  ChunkCipher cipher_;
  std::vector<std::byte> content_, sealed_;
};

class Opener {
 public:
  // `path`: of the file. `bytes`: that it has.
  Opener(const ContentKey& key, std::string place, std::string path, std::uint64_t bytes);

  // The file as it comes; gives `take` only what was sealed for this place. Throw Failure, which names the file.
  void add(std::span<const std::byte> sealed, const TakesBytes& take);
  void end();

 private:
  void open(bool is_last, const TakesBytes& take);
  [[noreturn]] void fail(const char* how) const;

  const ContentKey key_;
  const std::string place_, path_;
  std::uint64_t left_;  // bytes that are not in a whole chunk yet
  std::vector<std::byte> part_, content_;
  std::unique_ptr<ChunkCipher> cipher_;  // once the header is known
  bool has_ended_ = false;
};

}  // namespace ferry::store
