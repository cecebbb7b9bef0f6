// What an encrypted checkpoint shows to whom, and that nobody without its key changes it unnoticed.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/json_text.h"
#include "keys.h"
#include "made.h"
#include "store/digest.h"
#include "store/recipients.h"
#include "temporary.h"

namespace ferry::store {
namespace {

using ferry::test::failure_of;
using ferry::test::Folder;
using test::ec;
using test::Files;
using test::KeyPair;
using test::kId;
using test::kOther;
using test::make;
using test::noise;
using test::read;
using test::rsa;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const KeyPair& keeper() {
  static const KeyPair pair = ec();
  return pair;
}

Recipients recipients_of(const std::vector<KeyPair>& pairs) {
  Recipients recipients;
  for (const auto& pair : pairs) recipients.add(pair.certificate, "keeper.pem");
  return recipients;
}

EncryptTo fresh_encryption() {
  return {ContentKey::random(), recipients_of({keeper()})};
}

std::string unlocked_and_read(const Folder& folder, const std::string& id, const KeyPair& pair) {
  return failure_of([&] {
    auto checkpoint = Store(folder.path()).open(id);
    checkpoint.unlock(checkpoint.content_key(PrivateKey(pair.key, "key.pem")));
    checkpoint.verify();
  });
}

class Encrypted : public ::testing::Test {
 protected:
  Encrypted() { make(folder_.path(), kId, {files_, {{"c", "c"}}}, 150'000, encryption_); }

  std::string name(const std::string& file, const std::string& id = kId) const {
    return id + "/" + file;
  }
  std::string path(const std::string& file) const { return folder_.path(name(file)); }
  // What is said by reading all of it with the key, and without.
  std::string read_all() const { return unlocked_and_read(folder_, kId, keeper()); }
  std::string compared() const {
    return failure_of([&] { Store(folder_.path()).open(kId).verify(); });
  }
  std::vector<std::string> shards(const std::string& id = kId) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path(id))) {
      const std::string file = entry.path().filename();
      if (file.ends_with(".enc")) names.push_back(file);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // As whoever may write there, and can compute digests, but has no key: a manifest that fits the files.
  void write_manifest(const std::function<void(nlohmann::json&)>& change = [](auto&) {}) const {
    auto whole = json_of(folder_.read(name(kManifest)));
    change(whole);
    auto& checkpoint = whole["checkpoint"];
    for (auto& program : checkpoint["programs"]) {
      for (auto& shard : program["shards"]) {
        const std::string stored = folder_.read(name(shard["file"].get<std::string>()));
        shard["stored_bytes"] = stored.size();
        shard["sha256"] = digest_of(stored);
      }
    }
    checkpoint["key_sha256"] = digest_of(folder_.read(name(kKeyFile)));
    whole["sha256"] = digest_of(json_text(checkpoint) + whole["mac"].get<std::string>());
    folder_.write(name(kManifest), json_text(whole, 1) + "\n");
  }
  // What reading says when `shard` has this content and the manifest is trusted, as by somebody who has the key.
  std::string read_with(const std::string& file, const std::string& content) const {
    folder_.write(name(file), content);
    auto manifest = Store(folder_.path()).open(kId).manifest();
    for (auto& program : manifest.programs) {
      for (auto& shard : program.shards) {
        shard.sha256 = digest_of(folder_.read(name(shard.file)));
        shard.stored = folder_.read(name(shard.file)).size();
      }
    }
    folder_.write(name(kManifest), to_text(manifest, encryption_.key));
    return read_all();
  }

  const Folder folder_;
  const Files files_{{"a", noise(200'000, 1)}, {"b", std::string(900, 'b')}};
  const EncryptTo encryption_ = fresh_encryption();
};

TEST_F(Encrypted, IsReadWithTheKey) {
  auto checkpoint = Store(folder_.path()).open(kId);
  ASSERT_TRUE(checkpoint.manifest().encryption);
  const ContentKey key = checkpoint.content_key(PrivateKey(keeper().key, "key.pem"));
  EXPECT_EQ(key, encryption_.key);
  checkpoint.unlock(key);
  EXPECT_EQ(read(checkpoint, 0), files_);
  EXPECT_EQ(read(checkpoint, 1), (Files{{"c", "c"}}));
  EXPECT_EQ(read_all(), "");
}

TEST_F(Encrypted, IsNotReadWithoutIt) {
  const auto checkpoint = Store(folder_.path()).open(kId);
  const std::string said = folder_.path(kId) + " is encrypted: give the private key with --key";
  EXPECT_EQ(failure_of([&] { read(checkpoint, 0); }), said);
  EXPECT_EQ(failure_of([&] { checkpoint.read_file(1, 0, [](auto) {}); }), said);
  checkpoint.verify();
}

TEST_F(Encrypted, HasNothingOfItsContent) {
  make(folder_.path(), kOther, {{{"a", "what nobody else may read"}}}, 1000, encryption_);
  Folder open;
  make(open.path(), kOther, {{{"a", "what nobody else may read"}}}, 1000);
  const std::string there = folder_.read(name("0000-000000.zst.enc", kOther));
  EXPECT_THAT(open.read(name("0000-000000.zst", kOther)), HasSubstr("nobody else"));
  EXPECT_THAT(there, Not(HasSubstr("nobody else")));
  // Nor does the same content look the same twice, or its digest.
  make(folder_.path(), "00000000000000cc", {{{"a", "what nobody else may read"}}}, 1000,
       encryption_);
  EXPECT_NE(folder_.read(name("0000-000000.zst.enc", "00000000000000cc")), there);
  EXPECT_THAT(folder_.read(name(kManifest, kOther)),
              Not(HasSubstr(digest_of("what nobody else may read"))));
}

TEST_F(Encrypted, FilesEndAnywhereInChunks) {
  for (const std::size_t size :
       {0u, 1u, 65'000u, 65'525u, 65'526u, 65'527u, 65'536u, 131'000u, 131'059u, 131'060u}) {
    const Files files{{"a", noise(size, 2)}};
    make(folder_.path(), kOther, {files}, 1 << 20, encryption_);
    auto checkpoint = Store(folder_.path()).open(kOther);
    checkpoint.unlock(encryption_.key);
    EXPECT_EQ(read(checkpoint, 0), files) << size;
    Store(folder_.path()).remove(kOther);
  }
}

TEST_F(Encrypted, EveryByteOfItsFilesCounts) {
  auto files = shards();
  files.push_back(kManifest);
  files.push_back(kKeyFile);
  ASSERT_EQ(files.size(), 5u);
  for (const auto& file : files) {
    const std::string whole = folder_.read(name(file));
    const std::size_t step = whole.size() > 3000 ? 7919 : 41;
    for (std::size_t i = 0; i < whole.size(); i += i < 60 ? 3 : step) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ 0x04);
      folder_.write(name(file), changed);
      EXPECT_THAT(read_all(), StartsWith(path(file))) << "byte " << i;
      EXPECT_THAT(compared(), StartsWith(path(file))) << "byte " << i;
    }
    folder_.write(name(file), whole);
  }
  EXPECT_EQ(read_all(), "");
}

// Also when all digests fit.
TEST_F(Encrypted, EveryPartOfAShardIsAuthentic) {
  const std::string file = "0000-000000.zst.enc", whole = folder_.read(name(file));
  const std::string said = path(file) + " is damaged: ";
  ASSERT_GT(whole.size(), 140'000u);
  constexpr std::size_t kHeader = 40, kChunk = 65'536 + 16;
  for (const std::size_t at : {std::size_t{8}, kHeader - 1, kHeader, kHeader + kChunk - 1,
                               kHeader + kChunk, whole.size() - 1}) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x80);
    EXPECT_EQ(read_with(file, changed), said + "it is not what was encrypted there") << at;
  }
  EXPECT_EQ(read_with(file, "x" + whole.substr(1)), said + "it is not encrypted");
  EXPECT_EQ(read_with(file, whole), "");
}

TEST_F(Encrypted, AShardThatIsCutIsFound) {
  const std::string file = "0000-000000.zst.enc", whole = folder_.read(name(file));
  const std::string said = path(file) + " is damaged: ";
  constexpr std::size_t kHeader = 40, kChunk = 65'536 + 16;
  for (const std::size_t size : {kHeader + 1, kHeader + 16, kHeader + kChunk, kHeader + 2 * kChunk,
                                 kHeader + kChunk + 5, whole.size() - 1}) {
    EXPECT_EQ(read_with(file, whole.substr(0, size)), said + "it is not what was encrypted there")
        << size;
  }
  EXPECT_EQ(read_with(file, whole.substr(0, kHeader)), said + "its end is missing");
  EXPECT_EQ(read_with(file, whole.substr(0, 7)), said + "it is not encrypted");
  EXPECT_EQ(read_with(file, ""), said + "its end is missing");
  EXPECT_EQ(read_with(file, whole + "x"), said + "it is not what was encrypted there");
}

TEST_F(Encrypted, ChunksAreInTheirOrder) {
  const std::string file = "0000-000000.zst.enc", whole = folder_.read(name(file));
  constexpr std::size_t kHeader = 40, kChunk = 65'536 + 16;
  EXPECT_EQ(read_with(file, whole.substr(0, kHeader) + whole.substr(kHeader + kChunk, kChunk) +
                                whole.substr(kHeader, kChunk) + whole.substr(kHeader + 2 * kChunk)),
            path(file) + " is damaged: it is not what was encrypted there");
  EXPECT_EQ(read_with(file, whole.substr(0, kHeader) + whole.substr(kHeader + kChunk)),
            path(file) + " is damaged: it is not what was encrypted there");
}

TEST_F(Encrypted, ShardsAreInTheirPlace) {
  const std::string first = folder_.read(name("0000-000000.zst.enc"));
  EXPECT_EQ(read_with("0001-000000.zst.enc", first),
            path("0001-000000.zst.enc") + " is damaged: it is not what was encrypted there");
  // Those of another checkpoint that has the same key.
  make(folder_.path(), kOther, {files_, {{"c", "d"}}}, 150'000, encryption_);
  EXPECT_EQ(read_with("0001-000000.zst.enc", folder_.read(name("0001-000000.zst.enc", kOther))),
            path("0001-000000.zst.enc") + " is damaged: it is not what was encrypted there");
}

// Who may write there can write a manifest whose digests fit, but not with the key.
TEST_F(Encrypted, ItsManifestIsAuthentic) {
  const std::string said =
      path(kManifest) + " is damaged: it was written without the checkpoint's key";
  const std::string whole = folder_.read(name(kManifest));
  write_manifest();
  EXPECT_EQ(read_all(), "");
  const std::vector<std::function<void(nlohmann::json&)>> changes{
      [](auto& manifest) { manifest["checkpoint"]["programs"][0]["name"] = "other"; },
      [](auto& manifest) { manifest["checkpoint"]["programs"][0]["facts"]["kind"] = "x"; },
      [](auto& manifest) { manifest["checkpoint"]["programs"][1]["files"][0]["name"] = "d"; },
      [](auto& manifest) { manifest["checkpoint"]["programs"][0]["shards"][0]["from"] = kOther; },
      [](auto& manifest) { manifest["checkpoint"]["made"] = "2031-11-28T13:04:05.678Z"; },
      [](auto& manifest) { manifest["mac"] = std::string(64, '0'); },
      [](auto& manifest) { manifest["mac"] = ""; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    write_manifest(changes[i]);
    EXPECT_EQ(compared(), "") << i;
    EXPECT_EQ(read_all(), said) << i;
    folder_.write(name(kManifest), whole);
  }
  // A whole checkpoint of another one's under this name.
  folder_.write(name("0001-000000.zst.enc"), "x");
  write_manifest();
  EXPECT_EQ(read_all(), said);
}

TEST_F(Encrypted, AnotherContentKeyIsOfNoUse) {
  folder_.write(name(kKeyFile), recipients_of({keeper()}).wrap(ContentKey::random()));
  write_manifest();
  EXPECT_EQ(read_all(),
            path(kManifest) + " is damaged: it was written without the checkpoint's key");
  folder_.write(name(kKeyFile), recipients_of({rsa()}).wrap(encryption_.key));
  write_manifest();
  EXPECT_THAT(read_all(), StartsWith("key.pem does not open " + path(kKeyFile)));
  folder_.write(name(kKeyFile), "x");
  write_manifest();
  EXPECT_EQ(read_all(), path(kKeyFile) + " is damaged: it is no wrapped key");
}

TEST_F(Encrypted, OneThatIsNotIsNoneInItsPlace) {
  make(folder_.path(), kOther, {{{"a", "a"}}}, 1000);
  EXPECT_THAT(failure_of([&] { Store(folder_.path()).open(kOther).unlock(encryption_.key); }),
              StartsWith(folder_.path(kOther) + " is not encrypted, but a key was given"));
  EXPECT_EQ(unlocked_and_read(folder_, kOther, keeper()),
            failure_of([&] { Store(folder_.path()).open(kOther).unlock(encryption_.key); }));
}

TEST_F(Encrypted, ItsKeyIsMissing) {
  std::filesystem::remove(path(kKeyFile));
  EXPECT_EQ(read_all(), "cannot read " + path(kKeyFile) + ": No such file or directory");
  EXPECT_EQ(compared(), "cannot read " + path(kKeyFile) + ": No such file or directory");
}

TEST_F(Encrypted, FilesOfAnotherWithTheSameKeyAreLinked) {
  const auto link = [&](const std::string& to, const std::string& from,
                        const std::optional<EncryptTo>& encryption) {
    auto former = Store(folder_.path()).open(from);
    former.unlock(encryption_.key);
    NewCheckpoint fresh(folder_.path(), to, encryption);
    NewImages images(folder_.path(), to, 0, 150'000,
                     encryption ? std::optional(encryption->key) : std::nullopt);
    ImageWriter& writer = images.add();
    writer.begin_file("before", 0600);
    writer.write(test::bytes_of("b"));
    writer.end_shard();
    const std::size_t of_former = former.manifest().programs.size() - 1;
    const bool is_linked = writer.link_file("c", former, of_former,
                                            former.manifest().programs[of_former].files.size() - 1);
    Program program = test::program("p");
    writer.end(&program);
    fresh.complete("1", {program});
    return is_linked;
  };
  EXPECT_FALSE(link("00000000000000c1", kId, std::nullopt))
      << "what is encrypted, into what is not";
  EXPECT_FALSE(link("00000000000000c2", kId, fresh_encryption())) << "with another key";
  EXPECT_TRUE(link(kOther, kId, encryption_));
  EXPECT_TRUE(link("00000000000000c3", kOther, encryption_)) << "from the one to the next";
  Store(folder_.path()).remove(kId);
  Store(folder_.path()).remove(kOther);
  auto checkpoint = Store(folder_.path()).open("00000000000000c3");
  checkpoint.unlock(encryption_.key);
  EXPECT_EQ(read(checkpoint, 0), (Files{{"before", "b"}, {"c", "c"}}));
  const Shard& shard = checkpoint.manifest().programs[0].shards[1];
  EXPECT_EQ(shard.from, kId);
  EXPECT_EQ(shard.as, "0001-000000.zst.enc");
}

TEST_F(Encrypted, NothingOpenIsLinked) {
  make(folder_.path(), kOther, {{{"a", "secret"}}}, 1000);
  const auto open = Store(folder_.path()).open(kOther);
  NewCheckpoint fresh(folder_.path(), "00000000000000c1", encryption_);
  NewImages images(folder_.path(), "00000000000000c1", 0, 1000, encryption_.key);
  EXPECT_FALSE(images.add().link_file("a", open, 0, 0));
  // Nor what is encrypted, but not unlocked.
  EXPECT_FALSE(images.add().link_file("c", Store(folder_.path()).open(kId), 1, 0));
}

TEST_F(Encrypted, WhatAHostHasWrittenOpenlyIsRefused) {
  NewCheckpoint fresh(folder_.path(), "00000000000000c1", encryption_);
  NewImages images(folder_.path(), "00000000000000c1", 0, 1000);
  const Program open = test::write_image(images.add(), {{"a", "secret"}}, test::program("p"));
  EXPECT_EQ(failure_of([&] { fresh.complete("1.2.3", {open}); }),
            folder_.path("00000000000000c1.partial/0000-000000.zst") +
                " of 'p' is not encrypted: the ferryd of h1, which has written it, does not do so");
}

TEST_F(Encrypted, ItsKeyFileHasALimit) {
  folder_.write(name(kKeyFile), std::string((1 << 20) + 1, 'x'));
  write_manifest();
  EXPECT_EQ(read_all(), path(kKeyFile) + " is damaged: it is too large");
}

TEST_F(Encrypted, IsListed) {
  make(folder_.path(), kOther, {{{"a", "a"}}}, 1000);
  const auto entries = Store(folder_.path()).list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_TRUE(entries[0].manifest->encryption);
  EXPECT_FALSE(entries[1].manifest->encryption);
}

TEST_F(Encrypted, ItsFilesAreItsOwnersAlone) {
  for (const auto& file : std::filesystem::directory_iterator(folder_.path(kId))) {
    EXPECT_EQ(file.status().permissions(), std::filesystem::perms(0600)) << file.path();
  }
}

TEST(EncryptedTo, SeveralWhoReadItAlone) {
  const std::vector<KeyPair> pairs{rsa(), ec(), rsa(3072), ec({}, "P-384"), ec()};
  const Folder folder;
  make(folder.path(), kId, {{{"a", "a"}}}, 1000,
       EncryptTo{ContentKey::random(), recipients_of(pairs)});
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(unlocked_and_read(folder, kId, pairs[i]), "") << i;
  }
  for (const auto& other : {rsa(), ec(), ec({}, "P-384"), ec({}, "P-521")}) {
    EXPECT_EQ(unlocked_and_read(folder, kId, other),
              "key.pem does not open " + folder.path(kId) +
                  "/key.cms: the checkpoint is encrypted for others");
    EXPECT_THROW(Store(folder.path()).open(kId).content_key(PrivateKey(other.key, "key.pem")),
                 WrongKey);
  }
}

// Whose key cannot be wrapped leaves nothing.
TEST(EncryptedTo, Nobody) {
  const Folder folder;
  EXPECT_THAT(failure_of([&] {
                NewCheckpoint(folder.path(), kId, EncryptTo{ContentKey::random(), Recipients()});
              }),
              HasSubstr("a checkpoint is encrypted for somebody"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

std::string said_of(const std::string& pem) {
  return failure_of([&] { Recipients().add(pem, "keeper.pem"); });
}

TEST(Recipients, HaveCertificatesThatCanBeUsed) {
  EXPECT_EQ(said_of(rsa(2048, {.usage = "keyEncipherment"}).certificate), "");
  EXPECT_EQ(said_of(ec({.usage = "digitalSignature,keyAgreement"}).certificate), "");
  EXPECT_EQ(said_of("no"), "keeper.pem is no certificate in PEM");
  EXPECT_EQ(said_of(keeper().key), "keeper.pem is no certificate in PEM");
  EXPECT_EQ(said_of(ec({.from = -60, .until = -1}).certificate),
            "keeper.pem has expired: give a certificate that is good");
  EXPECT_EQ(said_of(ec({.from = 60}).certificate),
            "keeper.pem is not good yet: give a certificate that is, or set the clock");
  EXPECT_EQ(said_of(rsa(1024).certificate),
            "keeper.pem has an RSA key of 1024 bits: use one with 2048 or more");
  EXPECT_EQ(said_of(ec({}, "P-192").certificate),
            "keeper.pem has a key on a curve that is too short: use P-256 or a longer one");
  EXPECT_EQ(said_of(test::pair_of(::EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")).certificate),
            "keeper.pem has a key to which nothing can be encrypted: use one with RSA or EC");
  EXPECT_EQ(said_of(ec({.usage = "digitalSignature"}).certificate),
            "keeper.pem is not made for encryption: its key usage lacks keyAgreement");
  EXPECT_EQ(said_of(rsa(2048, {.usage = "digitalSignature"}).certificate),
            "keeper.pem is not made for encryption: its key usage lacks keyEncipherment");
}

TEST(Recipients, AreKnownByTheirCertificates) {
  const KeyPair other = ec();
  EXPECT_EQ(recipients_of({keeper(), other}).digest(),
            recipients_of({other, keeper(), other}).digest());
  EXPECT_NE(recipients_of({keeper(), other}).digest(), recipients_of({keeper()}).digest());
  Recipients both;
  both.add(keeper().key + keeper().certificate, "both.pem");
  ASSERT_EQ(both.pems().size(), 1u);
  EXPECT_EQ(both.pems()[0], keeper().certificate) << "the private key goes nowhere";
}

TEST(PrivateKeys, AreInPemWithoutAPassphrase) {
  EXPECT_EQ(failure_of([] { PrivateKey("x", "key.pem"); }), "key.pem is no private key in PEM");
  EXPECT_EQ(failure_of([] { PrivateKey(keeper().certificate, "key.pem"); }),
            "key.pem is no private key in PEM");
  EXPECT_THAT(failure_of([] { PrivateKey(ec({.passphrase = "open"}).key, "key.pem"); }),
              StartsWith("key.pem has a passphrase: write the key without one"));
}

TEST(ContentKeys, HaveOneLength) {
  const ContentKey key = ContentKey::random();
  EXPECT_EQ(ContentKey(key.bytes()), key);
  EXPECT_FALSE(ContentKey::random() == key);
  EXPECT_EQ(failure_of([&] { ContentKey(key.bytes().substr(1)); }),
            "a content key has another length");
}

// As `openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt hexkey:0b0b... -kdfopt info:purpose -kdfopt salt:salt HKDF`
// and `openssl dgst -sha256 -mac HMAC -macopt hexkey:0b0b...` give them.
TEST(ContentKeys, GiveOthers) {
  const ContentKey key(std::string(32, '\x0b'));
  std::string hex;
  const ContentKey derived = key.derived("purpose", "salt");
  for (const unsigned char byte : derived.bytes()) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "c333c43b3f80284b29455886d854ecb1fa3763d8db1e46267f001f39e4db5064");
  EXPECT_EQ(key.mac("text"), "26dba1cc6c61090571a652be90ac53bfc8be2ee78af623084ee6c002320063b6");
}

}  // namespace
}  // namespace ferry::store
