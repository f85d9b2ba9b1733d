#pragma once

// For the tests of this folder: a log in a directory of its own, with a key, a clock and events
// that are the same in every run, so that every byte of it is known beforehand.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "audit/log.h"
#include "audit/segment_file.h"

namespace hufu::audit::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string path = std::filesystem::temp_directory_path() / "hufu-audit-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  TemporaryDirectory(TemporaryDirectory&&) = delete;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

using Bytes = std::vector<std::byte>;

inline Bytes read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  Bytes bytes(chars.size());
  std::ranges::transform(chars, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

inline void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.flush()) << path;
}

// 2026-07-30 12:00:00 UTC and then a millisecond per record.
inline std::uint64_t g_clock_ticks = 0;
inline Times fixed_clock() {
  constexpr std::uint64_t kBegin = 1'785'412'800'000'000'000;
  constexpr std::uint64_t kTick = 1'000'000;
  ++g_clock_ticks;
  return {.realtime_ns = kBegin + g_clock_ticks * kTick, .boottime_ns = g_clock_ticks * kTick};
}

inline Id128 id_of(std::uint8_t byte) {
  Id128 id{};
  id.fill(std::byte{byte});
  return id;
}

inline ChainKey fixed_key() {
  ChainKey key{};
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<std::byte>(i);
  return key;
}

// Segments of a header and 15 records: small enough to have several of, and to keep as golden
// files.
inline constexpr std::uint32_t kSmallSegment = 16 * kRecordBytes;

inline Log::Options fixed_options(const std::string& directory) {
  return {.directory = directory,
          .instance = id_of(0xA1),
          .version = "0.1.0",
          .segment_bytes = kSmallSegment,
          .keep_bytes = std::uint64_t{64} * kSmallSegment,
          .boot_id = id_of(0xB2),
          .now = fixed_clock};
}

// Puts the fixed key there first, and begins time anew.
inline Log::Options begin_fixed_log(const std::string& directory) {
  ::mkdir(directory.c_str(), 0700);
  write_file(directory + "/key0", fixed_key());
  g_clock_ticks = 0;
  return fixed_options(directory);
}

// An import that a whitelist refuses, with a value in every field.
inline Record refused_import(std::uint64_t n) {
  return {.type = Type::kDeny,
          .outcome = Outcome::kDeny,
          .access = Access::kReadWrite,
          .reason = Reason::kNotListed,
          .acl_code = 507899,
          .actor = {.uid = 1000,
                    .gid = 1001,
                    .pid = static_cast<std::uint32_t>(4000 + n),
                    .start_time = 123456,
                    .pidfs_inode = 777,
                    .cgroup_id = 42,
                    .exe_dev = 0xFE01,
                    .exe_ino = 9001,
                    .comm = {'p', 'y', 't', 'h', 'o', 'n', '3'}},
          .owner = {.uid = 1000, .pid = 3999, .pidfs_inode = 776},
          .share_id = 0x1122334455667788 + n,
          .offset = 4096,
          .size = 8192,
          .page = 4096,
          .backing = Backing::kShmem,
          .key_id = id_of(static_cast<std::uint8_t>(n)),
          .connection = 5,
          .request = n,
          .refs_after = 1,
          .flags = 1,
          .aux = static_cast<std::uint64_t>(Type::kImport)};
}

inline void append_events(Log& log, std::uint64_t count) {
  for (std::uint64_t n = 0; n < count; ++n) {
    Record record = refused_import(n);
    const auto done = log.append(record);
    ASSERT_TRUE(done) << done.error().what();
  }
}

inline std::string segment_path(const std::string& directory, std::uint64_t number) {
  return directory + "/" + segment_name(number);
}

}  // namespace hufu::audit::test
