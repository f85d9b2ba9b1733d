#include "audit/chain.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace hufu::audit {
namespace {

// SHA-256 of bytes in memory fails only where OpenSSL has no SHA-256 or no memory for 300 bytes.
// There is no log without it, so there is nothing to go on with.
void must(bool done) {
  if (done) return;
  std::fputs("hufu: SHA-256 from libcrypto does not work\n", stderr);
  std::abort();
}

Id128 first_half(const Hash& hash) {
  Id128 half{};
  std::copy_n(hash.begin(), half.size(), half.begin());
  return half;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Sha256::Sha256() : md_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
  must(md_ != nullptr && context_ != nullptr);
}

Hash Sha256::of(std::initializer_list<std::span<const std::byte>> parts) {
  must(EVP_DigestInit_ex2(context_.get(), md_.get(), nullptr) == 1);
  for (const auto part : parts) {
    must(EVP_DigestUpdate(context_.get(), part.data(), part.size()) == 1);
  }
  Hash hash{};
  must(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(hash.data()), nullptr) ==
       1);
  return hash;
}

Id128 Chain::log_id() { return first_half(sha256_.of({bytes_of("hufu-logid/1"), key_})); }

Id128 key_id(std::span<const std::byte, 48> sealed_key) {
  thread_local Sha256 sha256;
  return first_half(sha256.of({bytes_of("hufu-keyid/1"), sealed_key}));
}

std::string hex(const Id128& id) {
  return fmt::format("{:02x}", fmt::join(id.begin(), id.end(), ""));
}

}  // namespace hufu::audit
