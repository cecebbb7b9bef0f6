// Decrypts requests, and drops those that are not encrypted with its key.

#include "cipher.h"
#include "function.h"

namespace nf_chain {
namespace {

class Decryption : public Function {
 public:
  explicit Decryption(const std::string& key) : cipher_(key, false) {}
  const char* name() const override { return "decryption"; }

  bool process(const Header& header, const char* payload, std::vector<Output>& outputs) override {
    const std::size_t encrypted = header.size - sizeof header;
    if (encrypted < Cipher::kTag) return false;
    Header plain = header;
    plain.size -= Cipher::kTag;
    char* const to = outputs[0].room(plain.size);
    std::memcpy(to, &plain, sizeof plain);
    if (cipher_.decrypt(header.number, payload, encrypted, to + sizeof plain)) return true;
    outputs[0].take_back(plain.size);
    return false;
  }

 private:
  Cipher cipher_;
};

}  // namespace

std::unique_ptr<Function> make_decryption(const std::string& key) {
  return std::make_unique<Decryption>(key);
}

}  // namespace nf_chain
