#include "os/mapped_file.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/unique_fd.h"

namespace hufu::os {
namespace {

constexpr std::size_t kPage = 4096;

UniqueFd file_of(std::size_t bytes) {
  char name[] = "/tmp/hufu-mapped-XXXXXX";
  UniqueFd fd(::mkstemp(name));
  ::unlink(name);
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

std::array<std::byte, 16> sixteen(int value) {
  std::array<std::byte, 16> bytes{};
  bytes.fill(static_cast<std::byte>(value));
  return bytes;
}

TEST(MappedFile, WhatIsStoredIsInTheFile) {
  const UniqueFd fd = file_of(2 * kPage);
  auto file = MappedFile::map(fd.get(), 2 * kPage);
  ASSERT_TRUE(file) << file.error().what();
  ASSERT_TRUE(file->store(kPage - 8, sixteen(7)));
  std::array<std::byte, 16> read{};
  ASSERT_EQ(::pread(fd.get(), read.data(), read.size(), kPage - 8), 16);
  EXPECT_EQ(read, sixteen(7));
}

TEST(MappedFile, AFileThatWasCutOffIsAnErrorEachTime) {
  const UniqueFd fd = file_of(2 * kPage);
  auto file = MappedFile::map(fd.get(), 2 * kPage);
  ASSERT_TRUE(file) << file.error().what();
  ASSERT_EQ(::ftruncate(fd.get(), kPage), 0);
  for (int i = 0; i < 3; ++i) {
    const auto stored = file->store(kPage, sixteen(1));
    ASSERT_FALSE(stored);
    EXPECT_EQ(stored.error().sys_errno, EIO);
  }
  EXPECT_TRUE(file->store(0, sixteen(1))) << "the rest of it is as good as ever";
}

TEST(MappedFile, EachThreadHasItsOwnWayOut) {
  const UniqueFd fd = file_of(2 * kPage);
  auto file = MappedFile::map(fd.get(), 2 * kPage);
  ASSERT_TRUE(file) << file.error().what();
  ASSERT_EQ(::ftruncate(fd.get(), kPage), 0);
  constexpr int kRounds = 2'000;
  std::thread failing([&] {
    for (int i = 0; i < kRounds; ++i)
      EXPECT_FALSE(file->store(kPage, sixteen(i)));
  });
  for (int i = 0; i < kRounds; ++i)
    EXPECT_TRUE(file->store(0, sixteen(i)));
  failing.join();
}

TEST(MappedFile, AnybodyElsesSigbusIsWhatItWasBefore) {
  const UniqueFd fd = file_of(kPage);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGBUS, [](int) { ::_exit(42); });
    auto file = MappedFile::map(fd.get(), kPage);
    if (!file || !file->store(0, sixteen(1))) ::_exit(1);
    void* foreign = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (::ftruncate(fd.get(), 0) != 0 || foreign == MAP_FAILED) ::_exit(2);
    ::_exit(static_cast<int>(*static_cast<volatile char*>(foreign)));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
}

TEST(MappedFile, WhatCannotBeMappedIsAnError) { EXPECT_FALSE(MappedFile::map(-1, kPage)); }

}  // namespace
}  // namespace hufu::os
