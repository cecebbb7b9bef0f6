#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.h"
#include "store/content_key.h"

// Who may read an encrypted checkpoint: its content key is wrapped for their certificates (CMS, RFC 5083 and 5652), and
// their private keys unwrap it.
namespace ferry::store {

// Certificates. All throw Failure.
class Recipients {
 public:
  // One more, in PEM; `name` is that of its file.
  void add(std::string_view pem, const std::string& name);

  bool empty() const { return certificates_.empty(); }
  // Of each one the certificate alone, whatever else its file had.
  std::vector<std::string> pems() const;
  // Of all, in whichever order they were added.
  std::string digest() const;
  // Encrypts the key for each one, in DER.
  std::string wrap(const ContentKey& key) const;

 private:
  std::vector<std::shared_ptr<X509>> certificates_;
};

// A checkpoint is encrypted for others.
class WrongKey : public Failure {
 public:
  using Failure::Failure;
};

class PrivateKey {
 public:
  // `pem` is the content of the file `name`. Throws Failure, for a key with a passphrase too.
  PrivateKey(std::string_view pem, const std::string& name);

  // `wrapped` is the content of the file `path`. Throws WrongKey, and Failure for what is no wrapped key.
  ContentKey unwrap(std::string_view wrapped, const std::string& path) const;

 private:
  const std::string name_;
  std::shared_ptr<EVP_PKEY> key_;
};

}  // namespace ferry::store
