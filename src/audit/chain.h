#pragma once

// The hash chain, and the ids that stand for secrets in the log.
//
// Each 256 bytes of the log end in h_i = SHA-256(K || h_{i-1} || first 224 bytes): whoever does not
// have K can change no byte, and can drop, add, swap or repeat no record, without breaking every
// link that follows. K is the epoch's key; this version has one epoch, 0, and keeps its key.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "audit/record.h"
#include "base/result.h"

#include <openssl/evp.h>

namespace hufu::audit {

using ChainKey = std::array<std::byte, 32>;

// SHA-256 with the algorithm looked up once and the context reused: hashing allocates nothing. (An
// OpenSSL one-shot call looks the algorithm up each time, which costs as much as the hash itself.)
// Not thread-safe; each user has its own.
class Sha256 {
 public:
  Sha256();
  Hash of(std::initializer_list<std::span<const std::byte>> parts);

 private:
  struct FreeMd {
    void operator()(EVP_MD* md) const { EVP_MD_free(md); }
  };
  struct FreeContext {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD, FreeMd> md_;
  std::unique_ptr<EVP_MD_CTX, FreeContext> context_;
};

class Chain {
 public:
  explicit Chain(const ChainKey& key) : key_(key) {}

  // The link that comes after `previous` and covers these bytes.
  Hash link(const Hash& previous, std::span<const std::byte, kLinkedBytes> bytes) {
    return sha256_.of({key_, previous, bytes});
  }

  // Names the log that this key belongs to, without giving the key away.
  Id128 log_id();

 private:
  ChainKey key_;
  Sha256 sha256_;
};

// What stands for an export's key in records: the first half of SHA-256("hufu-keyid/1" || key). Two
// records with the same id speak of the same key; the id does not open anything.
Id128 key_id(std::span<const std::byte, 48> sealed_key);

// 32 lower-case hexadecimal digits.
std::string hex(const Id128& id);

}  // namespace hufu::audit
